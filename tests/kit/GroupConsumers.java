import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Queue;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Many consumers and tools in one Java process. A line of input is a command, its words separated by tabs:
 *
 * open NAME topics|pattern|re2 WHICH key=value...   a consumer in a thread of its own, polled until it is closed
 * commit NAME                                   commits its positions
 * set NAME topic:partition=offset,...           commits these offsets
 * close NAME                                    closes it
 * tool CLASS argument...                        runs the main method of one of Kafka's tools
 *
 * The first line of output is ready. The others are NAME, then assigned and all its places (topic:partition), or read and a place and an offset, or
 * committed, refused and why, closed, or failed and why; or tool and what it printed, in hex.
 */
public class GroupConsumers {
    private static final PrintStream OUT = System.out;
    private static final Map<String, Member> MEMBERS = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        reportExits();
        tell("ready", "");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "open" -> open(words);
                case "commit" -> MEMBERS.get(words[1]).ask("commit");
                case "set" -> MEMBERS.get(words[1]).ask(words[2]);
                case "close" -> MEMBERS.remove(words[1]).ask("close");
                case "tool" -> tell("tool", HexFormat.of().formatHex(tool(words)));
                default -> throw new IllegalArgumentException(line);
            }
        }
        System.exit(0);
    }

    /** Exits of tools become exceptions. The class has another package since 4.4. */
    private static void reportExits() throws Exception {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        } catch (ClassNotFoundException before44) {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        }
        Class<?> procedure = Class.forName(exit.getName() + "$Procedure");
        Object throwing = Proxy.newProxyInstance(exit.getClassLoader(), new Class<?>[] {procedure}, (proxy, method, given) -> {
            throw new IllegalStateException("exit " + given[0] + (given[1] == null ? "" : ": " + given[1]));
        });
        exit.getMethod("setExitProcedure", procedure).invoke(null, throwing);
    }

    private static void tell(String... words) {
        synchronized (OUT) {
            OUT.println(String.join("\t", words).replace('\n', ' '));
            OUT.flush();
        }
    }

    private static void open(String[] words) {
        Properties properties = new Properties();
        for (String pair : Arrays.copyOfRange(words, 4, words.length)) {
            properties.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
        }
        Member member = new Member(words[1], words[2], words[3], properties);
        MEMBERS.put(words[1], member);
        member.start();
    }

    private static byte[] tool(String[] words) throws Exception {
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        PrintStream both = new PrintStream(said, true, StandardCharsets.UTF_8);
        PrintStream error = System.err;
        System.setOut(both);
        System.setErr(both);
        try {
            Class.forName(words[1]).getMethod("main", String[].class)
                .invoke(null, (Object) Arrays.copyOfRange(words, 2, words.length));
        } catch (java.lang.reflect.InvocationTargetException ended) {
            both.println(ended.getCause().getMessage());
        } finally {
            System.setOut(OUT);
            System.setErr(error);
        }
        return said.toByteArray();
    }

    private static class Member extends Thread {
        private final String name;
        private final String how;
        private final String which;
        private final Properties properties;
        private final Queue<String> asked = new ConcurrentLinkedQueue<>();
        private volatile KafkaConsumer<byte[], byte[]> consumer;

        Member(String name, String how, String which, Properties properties) {
            this.name = name;
            this.how = how;
            this.which = which;
            this.properties = properties;
            setDaemon(true);
        }

        void ask(String what) {
            asked.add(what);
        }

        @Override
        public void run() {
            ByteArrayDeserializer bytes = new ByteArrayDeserializer();
            try (KafkaConsumer<byte[], byte[]> opened = new KafkaConsumer<>(properties, bytes, bytes)) {
                consumer = opened;
                switch (how) {
                    case "pattern" -> consumer.subscribe(Pattern.compile(which));
                    case "re2" -> subscribeByBroker();
                    default -> consumer.subscribe(List.of(which.split(",")));
                }
                live();
            } catch (Exception failure) {
                tell(name, "failed", failure.toString());
                return;
            }
            tell(name, "closed");
        }

        /** By name: consumers before 4.0 do not have it. */
        private void subscribeByBroker() throws ReflectiveOperationException {
            Class<?> pattern = Class.forName("org.apache.kafka.clients.consumer.SubscriptionPattern");
            KafkaConsumer.class.getMethod("subscribe", pattern)
                .invoke(consumer, pattern.getConstructor(String.class).newInstance(which));
        }

        private void live() {
            String before = "";
            while (true) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                    tell(name, "read", record.topic(), "" + record.partition(), "" + record.offset());
                }
                TreeSet<String> places = new TreeSet<>();
                consumer.assignment().forEach(place -> places.add(place.topic() + ":" + place.partition()));
                String now = String.join(",", places);
                if (!now.equals(before)) {
                    tell(name, "assigned", now);
                    before = now;
                }
                for (String what = asked.poll(); what != null; what = asked.poll()) {
                    if (what.equals("close")) {
                        return;
                    }
                    if (what.equals("commit")) {
                        commit();
                    } else {
                        set(what);
                    }
                }
            }
        }

        /** A commit that meets a rebalance is refused; users commit again once the consumer has rejoined. */
        private void commit() {
            try {
                consumer.commitSync();
                tell(name, "committed");
            } catch (CommitFailedException | RebalanceInProgressException refused) {
                tell(name, "refused", refused.getMessage());
            }
        }

        private void set(String offsets) {
            Map<TopicPartition, OffsetAndMetadata> wanted = new HashMap<>();
            for (String each : offsets.split(",")) {
                int colon = each.lastIndexOf(':');
                int equals = each.lastIndexOf('=');
                wanted.put(new TopicPartition(each.substring(0, colon), Integer.parseInt(each.substring(colon + 1, equals))),
                    new OffsetAndMetadata(Long.parseLong(each.substring(equals + 1))));
            }
            try {
                consumer.commitSync(wanted);
                tell(name, "committed");
            } catch (CommitFailedException | RebalanceInProgressException refused) {
                tell(name, "refused", refused.getMessage());
            }
        }
    }
}
