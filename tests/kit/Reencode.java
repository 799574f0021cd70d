import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads messages with Apache Kafka's own classes and writes them again. A line of input is the name of a class, a
 * version and the bytes in hex; a line of output the bytes that Kafka writes, and the fields as JSON.
 */
public class Reencode {
    private static final List<String> PACKAGES = List.of(
        "org.apache.kafka.common.message.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.");

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            System.out.println(reencode(words[0], Short.parseShort(words[1]), HexFormat.of().parseHex(words[2])));
        }
    }

    private static String reencode(String name, short version, byte[] bytes) throws Exception {
        Class<?> cls = find(name);
        Message message = (Message) cls.getDeclaredConstructor().newInstance();
        ByteBuffer input = ByteBuffer.wrap(bytes);
        message.read(new ByteBufferAccessor(input), version);
        if (input.hasRemaining()) {
            throw new IllegalStateException(name + " v" + version + ": " + input.remaining() + " bytes are left over");
        }
        Method toJson = find(name + "JsonConverter").getMethod("write", cls, short.class);
        JsonNode json = (JsonNode) toJson.invoke(null, message, version);
        ObjectSerializationCache sizes = new ObjectSerializationCache();
        ByteBuffer output = ByteBuffer.allocate(message.size(sizes, version));
        message.write(new ByteBufferAccessor(output), sizes, version);
        return HexFormat.of().formatHex(output.array()) + " " + json;
    }

    private static Class<?> find(String name) throws ClassNotFoundException {
        for (String place : PACKAGES) {
            try {
                return Class.forName(place + name);
            } catch (ClassNotFoundException absent) {
                continue;
            }
        }
        throw new ClassNotFoundException(name);
    }
}
