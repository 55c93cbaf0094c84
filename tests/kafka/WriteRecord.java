import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Writes one record with a header, as any service in Java does; prints its partition and offset. */
class WriteRecord {
    public static void main(String[] words) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", words[0], "acks", "all");
        var text = new StringSerializer();
        try (var producer = new KafkaProducer<>(settings, text, text)) {
            var record = new ProducerRecord<>(words[1], words[2], words[3]);
            record.headers().add("unit", "km/h".getBytes(StandardCharsets.UTF_8));
            var place = producer.send(record).get();
            System.out.println(place.partition() + " " + place.offset());
        }
    }
}
