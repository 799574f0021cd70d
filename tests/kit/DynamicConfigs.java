// Prints the keys of a broker that Apache Kafka lets a request change, each with its update mode: one a line.

import java.util.TreeMap;
import org.apache.kafka.server.config.DynamicBrokerConfig;

public class DynamicConfigs {
    public static void main(String[] args) {
        new TreeMap<String, String>(DynamicBrokerConfig.dynamicConfigUpdateModes())
            .forEach((name, mode) -> System.out.println(name + " " + mode));
    }
}
