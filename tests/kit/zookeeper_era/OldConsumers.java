import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import kafka.consumer.Blacklist;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.consumer.KafkaStream;
import kafka.consumer.Whitelist;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

/**
 * Consumers and tools of Kafka 0.8 to 1.1, many in one Java process. A line of input is a command, its words separated
 * by tabs; `tests/kit/zookeeper_era/processes.py` sends them, and `our_consumers.py` accepts the same:
 *
 * open NAME static|white|black WHAT STREAMS key=value...   a connector; WHAT is topic,... or a regular expression
 * commit NAME          commits the positions of its streams
 * close NAME           shuts it down
 * tool CLASS argument...   runs the main method of one of Kafka's tools
 * ping WORD            is answered when all earlier lines are written
 *
 * The first line of output is ready. The others: NAME, then opened, released, read STREAM TOPIC PARTITION OFFSET,
 * committed, closed or failed REASON; tool and what it printed, in hex; pong WORD. A record is printed before the
 * stream counts it as consumed, so no commit is ahead of the output.
 */
public class OldConsumers {
    private static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), false);
    private static final Switch CONSOLE = new Switch();
    private static final Map<String, Member> MEMBERS = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        System.setOut(new PrintStream(CONSOLE, true));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        reportExits();
        say("ready", "");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "open" -> {
                    Member member = new Member(words);
                    MEMBERS.put(words[1], member);
                    member.run("opened", member::open);
                }
                case "commit" -> MEMBERS.get(words[1]).run("committed", MEMBERS.get(words[1])::commit);
                case "close" -> MEMBERS.get(words[1]).run("closed", MEMBERS.remove(words[1])::close);
                case "tool" -> say("tool", HexFormat.of().formatHex(tool(words)));
                case "ping" -> say("pong", words[1]);
                default -> throw new IllegalArgumentException(line);
            }
        }
        System.exit(0);
    }

    /** Exits of tools become exceptions; before 0.11 there is no such class. */
    private static void reportExits() throws Exception {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        } catch (ClassNotFoundException before011) {
            return;
        }
        Class<?> procedure = Class.forName(exit.getName() + "$Procedure");
        Object throwing = Proxy.newProxyInstance(exit.getClassLoader(), new Class<?>[] {procedure}, (proxy, method, given) -> {
            throw new IllegalStateException("exit " + given[0] + (given[1] == null ? "" : ": " + given[1]));
        });
        exit.getMethod("setExitProcedure", procedure).invoke(null, throwing);
    }

    private static void say(String... words) {
        synchronized (OUT) {
            OUT.print(String.join("\t", words).replace('\n', ' ') + "\n");
            OUT.flush();
        }
    }

    private static byte[] tool(String[] words) throws Exception {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        CONSOLE.target = printed;
        try {
            Class.forName(words[1]).getMethod("main", String[].class)
                .invoke(null, (Object) Arrays.copyOfRange(words, 2, words.length));
        } catch (InvocationTargetException ended) {
            printed.write(String.valueOf(ended.getCause()).getBytes(StandardCharsets.UTF_8));
        } finally {
            CONSOLE.target = System.err;
        }
        return printed.toByteArray();
    }

    /** Scala keeps the first System.out for ever, so its target changes, not itself. */
    private static class Switch extends OutputStream {
        volatile OutputStream target = System.err;

        @Override
        public void write(int each) throws java.io.IOException {
            target.write(each);
        }
    }

    private interface Step {
        void execute() throws Exception;
    }

    private static class Member {
        private final String name;
        private final String pattern;
        private final String what;
        private final int streams;
        private final Properties properties = new Properties();
        private final ExecutorService thread = Executors.newSingleThreadExecutor();
        private ConsumerConnector connector;

        Member(String[] words) {
            name = words[1];
            pattern = words[2];
            what = words[3];
            streams = Integer.parseInt(words[4]);
            for (String pair : Arrays.copyOfRange(words, 5, words.length)) {
                properties.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
            }
        }

        void run(String done, Step step) {
            thread.execute(() -> {
                try {
                    step.execute();
                    say(name, done);
                } catch (Throwable failure) {
                    failure.printStackTrace();
                    say(name, "failed", failure.toString());
                }
            });
        }

        void open() throws Exception {
            connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(properties));
            listen();
            if (pattern.equals("static")) {
                Map<String, Integer> counts = new HashMap<>();
                for (String topic : what.split(",")) {
                    counts.put(topic, streams);
                }
                connector.createMessageStreams(counts).values().forEach(this::read);
            } else {
                read(connector.createMessageStreamsByFilter(
                    pattern.equals("white") ? new Whitelist(what) : new Blacklist(what), streams));
            }
        }

        /** By reflection: 0.8.2 has no listener. */
        private void listen() throws Exception {
            Class<?> listener;
            try {
                listener = Class.forName("kafka.javaapi.consumer.ConsumerRebalanceListener");
            } catch (ClassNotFoundException before09) {
                return;
            }
            Object told = Proxy.newProxyInstance(listener.getClassLoader(), new Class<?>[] {listener}, (proxy, method, given) -> {
                if (method.getName().equals("beforeReleasingPartitions")) {
                    say(name, "released");
                }
                return null;
            });
            ConsumerConnector.class.getMethod("setConsumerRebalanceListener", listener).invoke(connector, told);
        }

        private void read(List<KafkaStream<byte[], byte[]>> all) {
            for (int number = 0; number < all.size(); number++) {
                ConsumerIterator<byte[], byte[]> records = all.get(number).iterator();
                String stream = String.valueOf(number);
                Thread reader = new Thread(() -> read(records, stream));
                reader.setDaemon(true);
                reader.start();
            }
        }

        private void read(ConsumerIterator<byte[], byte[]> records, String stream) {
            try {
                while (records.hasNext()) {
                    MessageAndMetadata<byte[], byte[]> record = records.peek();
                    say(name, "read", stream, record.topic(), "" + record.partition(), "" + record.offset());
                    records.next();
                }
            } catch (Throwable failure) {
                failure.printStackTrace();
                say(name, "failed", failure.toString());
            }
        }

        void commit() {
            connector.commitOffsets();
        }

        void close() {
            if (connector != null) {
                connector.shutdown();
            }
            thread.shutdown();
        }
    }
}
