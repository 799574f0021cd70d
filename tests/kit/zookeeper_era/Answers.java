import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import kafka.common.TopicAndPartition;
import kafka.consumer.ConsumerThreadId;
import kafka.consumer.RangeAssignor;
import kafka.consumer.RoundRobinAssignor;
import kafka.producer.DefaultPartitioner;
import org.I0Itec.zkclient.InMemoryConnection;
import org.I0Itec.zkclient.ZkClient;
import org.I0Itec.zkclient.serialize.ZkSerializer;

/**
 * What Kafka 0.8 to 1.1 computes, for `golden.py`. A line of input, its words separated by tabs:
 *
 * key HEX NUMBER        the partition of this text among NUMBER by the default partitioner, and its hash code
 * node PATH TEXT        of a tree in memory
 * assign GROUP          the assignments of all consumers of the group by range and round robin; the tree is empty then
 *
 * Lines of output: partition PARTITION HASH; range|roundrobin TOPIC PARTITION STREAM-ID; range|roundrobin refused; done.
 */
public class Answers {
    public static void main(String[] args) {
        try {
            answer();
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private static void answer() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        DefaultPartitioner partitioner = new DefaultPartitioner(null);
        ZkClient tree = newTree();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "key" -> {
                    String key = new String(HexFormat.of().parseHex(words[1]), StandardCharsets.UTF_8);
                    System.out.println("partition\t" + partitioner.partition(key, Integer.parseInt(words[2])) + "\t" + key.hashCode());
                }
                case "node" -> {
                    tree.createPersistent(words[1].substring(0, words[1].lastIndexOf('/')), true);
                    tree.createPersistent(words[1], words[2]);
                }
                case "assign" -> {
                    assign(tree, words[1]);
                    System.out.println("done");
                    tree = newTree();
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    private static ZkClient newTree() {
        ZkClient tree = new ZkClient(new InMemoryConnection(), 10_000);
        tree.setZkSerializer(new ZkSerializer() {
            public byte[] serialize(Object data) {
                return String.valueOf(data).getBytes(StandardCharsets.UTF_8);
            }

            public Object deserialize(byte[] bytes) {
                return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
            }
        });
        tree.createPersistent("/brokers/topics", true);
        return tree;
    }

    private static void assign(ZkClient tree, String group) throws Exception {
        for (Object assignor : new Object[] {new RangeAssignor(), new RoundRobinAssignor()}) {
            String strategy = assignor instanceof RangeAssignor ? "range" : "roundrobin";
            List<String> lines = new ArrayList<>();
            try {
                for (String consumer : tree.getChildren("/consumers/" + group + "/ids")) {
                    for (Map.Entry<?, ?> each : assignmentOf(assignor, context(tree, group, consumer), consumer).entrySet()) {
                        TopicAndPartition partition = (TopicAndPartition) each.getKey();
                        ConsumerThreadId stream = (ConsumerThreadId) each.getValue();
                        lines.add(strategy + "\t" + partition.topic() + "\t" + partition.partition() + "\t" + stream);
                    }
                }
                lines.forEach(System.out::println);
            } catch (InvocationTargetException refused) {
                Throwable cause = refused.getCause();  // 0.8.2: subscriptions differ, or none has a topic
                if (!(cause instanceof IllegalArgumentException || cause instanceof NullPointerException)) {
                    throw refused;
                }
                System.out.println(strategy + "\trefused");
            }
        }
    }

    /** AssignmentContext(group, consumer, excludeInternalTopics, ZkClient), or ZkUtils instead of it since 0.9. */
    private static Object context(ZkClient tree, String group, String consumer) throws Exception {
        Constructor<?> create = Class.forName("kafka.consumer.AssignmentContext").getConstructors()[0];
        Class<?> access = create.getParameterTypes()[3];
        Object given = access == ZkClient.class ? tree : access.getConstructors()[0].newInstance(tree, null, false);
        return create.newInstance(group, consumer, true, given);
    }

    /** Since 0.9 an assignor returns the assignments of all consumers. */
    private static Map<?, ?> assignmentOf(Object assignor, Object context, String consumer) throws Exception {
        Method assign = assignor.getClass().getMethod("assign", context.getClass());
        Object answer = assign.invoke(assignor, context);
        if (!(answer instanceof scala.collection.Map)) {
            answer = answer.getClass().getMethod("get", Object.class).invoke(answer, consumer);
        }
        return scala.collection.JavaConversions.mapAsJavaMap((scala.collection.Map<?, ?>) answer);
    }
}
