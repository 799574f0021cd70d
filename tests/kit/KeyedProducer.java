import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends a record for each line of input, which is a topic, a tab and a key in hex; the value is the number of the line.
 * The first argument is the address. For each line it prints partition and offset.
 */
public class KeyedProducer {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("max.request.size", Integer.toString(4 << 20));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties, bytes, bytes)) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                int tab = line.indexOf('\t');
                byte[] key = HexFormat.of().parseHex(line.substring(tab + 1));
                byte[] value = Integer.toString(sent.size()).getBytes(StandardCharsets.US_ASCII);
                sent.add(producer.send(new ProducerRecord<>(line.substring(0, tab), key, value)));
            }
            StringBuilder out = new StringBuilder();
            for (Future<RecordMetadata> each : sent) {
                out.append(each.get().partition()).append('\t').append(each.get().offset()).append('\n');
            }
            System.out.print(out);
        }
    }
}
