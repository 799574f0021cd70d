import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.LogTruncationException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A consumer of partition t-0 from its start, see tests/kit/clients/truncation.py for what it prints. */
public class TruncationConsumer {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("auto.offset.reset", args[1]);
        TopicPartition partition = new TopicPartition("t", 0);
        var strings = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, strings, strings)) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            while (System.in.available() == 0) {
                try {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                        System.out.println("read " + record.offset() + " " + record.value());
                    }
                } catch (LogTruncationException truncation) {
                    long offset = truncation.divergentOffsets().get(partition).offset();
                    System.out.println("truncated " + offset);
                    consumer.seek(partition, offset);
                }
            }
        }
        System.exit(0);
    }
}
