import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import kafka.common.OffsetAndMetadata;
import kafka.common.TopicAndPartition;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.javaapi.consumer.ConsumerConnector;

/** Arguments: ZOOKEEPER GROUP TOPIC PARTITIONS SECONDS. Prints the commits of all partitions per second, after as long a warm-up. */
public class Rates {
    public static void main(String[] args) {
        Properties properties = new Properties();
        properties.put("zookeeper.connect", args[0]);
        properties.put("group.id", args[1]);
        properties.put("auto.commit.enable", "false");
        ConsumerConnector connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(properties));
        double seconds = Double.parseDouble(args[4]);
        commit(connector, args[2], Integer.parseInt(args[3]), 0, seconds);
        System.out.println(commit(connector, args[2], Integer.parseInt(args[3]), 1_000_000, seconds));
        connector.shutdown();
        System.exit(0);
    }

    private static double commit(ConsumerConnector connector, String topic, int partitions, long first, double seconds) {
        long began = System.nanoTime();
        long offset = first;
        do {
            offset++;
            Map<TopicAndPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (int partition = 0; partition < partitions; partition++) {
                offsets.put(new TopicAndPartition(topic, partition), OffsetAndMetadata.apply(offset));
            }
            connector.commitOffsets(offsets, true);
        } while (System.nanoTime() - began < seconds * 1e9);
        return (offset - first) / ((System.nanoTime() - began) / 1e9);
    }
}
