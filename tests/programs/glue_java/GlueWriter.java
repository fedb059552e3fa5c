import com.amazonaws.services.schemaregistry.serializers.GlueSchemaRegistryKafkaSerializer;
import com.amazonaws.services.schemaregistry.serializers.json.JsonDataWithSchema;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.SchemaNormalization;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.io.DecoderFactory;
import software.amazon.awssdk.services.glue.model.DataFormat;

/**
 * Writes records by AWS's own serialisers, and fingerprints by Avro's own library.
 *
 * <pre>
 * java -cp JARS GlueWriter.java records URL REGISTRY FOLDER
 *     FOLDER has click.avsc, click.desc (a FileDescriptorSet), click.json (a JSON schema), and values, one a line:
 *     avro.jsonl (in Avro's JSON), protobuf.jsonl (full name, space, base64), json.jsonl.
 *     A line for each record and compression: format, compression, base64 of the payload.
 * java -cp JARS GlueWriter.java fingerprints FILE
 *     FILE has an Avro schema a line. A line each: CRC-64-AVRO as 16 digits, Parsing Canonical Form.
 * </pre>
 */
public class GlueWriter {
    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("fingerprints")) {
            for (String text : Files.readAllLines(Path.of(arguments[1]))) {
                Schema schema = new Schema.Parser().parse(text);
                long number = SchemaNormalization.parsingFingerprint64(schema);
                System.out.println(String.format("%016x ", number) + SchemaNormalization.toParsingForm(schema));
            }
            return;
        }
        Path folder = Path.of(arguments[3]);
        for (String compression : List.of("NONE", "ZLIB")) {
            for (DataFormat format : List.of(DataFormat.AVRO, DataFormat.PROTOBUF, DataFormat.JSON)) {
                String name = format.toString().toLowerCase();
                try (GlueSchemaRegistryKafkaSerializer serializer = new GlueSchemaRegistryKafkaSerializer()) {
                    serializer.configure(options(arguments[1], arguments[2], format, compression), false);
                    for (Object item : items(name, folder)) {
                        String payload = Base64.getEncoder().encodeToString(serializer.serialize("clicks", item));
                        System.out.println(name + " " + compression + " " + payload);
                    }
                }
            }
        }
    }

    private static Map<String, Object> options(String url, String registry, DataFormat format, String compression) {
        Map<String, Object> options = new HashMap<>();
        options.put("endpoint", url);
        options.put("region", "us-east-1");
        options.put("registry.name", registry);
        options.put("schemaName", "click-" + format.toString().toLowerCase());
        options.put("schemaAutoRegistrationEnabled", true);
        options.put("dataFormat", format.name());
        options.put("compression", compression);
        return options;
    }

    private static List<Object> items(String format, Path folder) throws Exception {
        List<String> lines = Files.readAllLines(folder.resolve(format + ".jsonl"));
        List<Object> items = new ArrayList<>();
        if (format.equals("avro")) {
            Schema schema = new Schema.Parser().parse(folder.resolve("click.avsc").toFile());
            for (String line : lines) {
                var decoder = DecoderFactory.get().jsonDecoder(schema, line);
                items.add(new GenericDatumReader<Object>(schema).read(null, decoder));
            }
        } else if (format.equals("protobuf")) {
            FileDescriptor file = file(folder.resolve("click.desc"));
            for (String line : lines) {
                String[] parts = line.split(" ");
                Descriptor descriptor = null;
                for (String name : parts[0].split("\\.")) {
                    descriptor = descriptor == null ? file.findMessageTypeByName(name) : descriptor.findNestedTypeByName(name);
                }
                items.add(DynamicMessage.parseFrom(descriptor, Base64.getDecoder().decode(parts.length > 1 ? parts[1] : "")));
            }
        } else {
            String schema = Files.readString(folder.resolve("click.json"));
            for (String line : lines) {
                items.add(JsonDataWithSchema.builder(schema, line).build());
            }
        }
        return items;
    }

    private static FileDescriptor file(Path path) throws Exception {
        List<FileDescriptor> known = new ArrayList<>();
        for (FileDescriptorProto proto : FileDescriptorSet.parseFrom(Files.readAllBytes(path)).getFileList()) {
            known.add(FileDescriptor.buildFrom(proto, known.toArray(new FileDescriptor[0])));
        }
        return known.get(known.size() - 1);
    }
}
