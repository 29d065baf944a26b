// A whole crawler for Freshet in Java 17, with Kafka's own client and Jackson, which it comes with:
//   java -cp 'kafka/libs/*' Crawler.java
// KAFKA_BOOTSTRAP_SERVERS says where Kafka is, FRESHET_TOPIC_PREFIX what topics begin with. Before
// you let it out, let it refuse addresses that are not public, and obey robots.txt.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import java.util.stream.StreamSupport;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Crawler {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Pattern ODD = Pattern.compile("[\\[\\]{}|^`\\\\]|%(?!\\p{XDigit}{2})");
    static final int PATIENCE_SECONDS = 60; // for the whole of a page
    static final int MOST_BYTES = 10_000_000;
    static final HttpClient WEB = HttpClient.newBuilder()
            .followRedirects(HttpClient.Redirect.NORMAL).connectTimeout(Duration.ofSeconds(20)).build();

    static String environment(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }

    /** Fetch a page; the outcome is there when it is. */
    static CompletableFuture<ObjectNode> crawl(JsonNode request) {
        ObjectNode outcome = JSON.createObjectNode().put("result", "failed");
        for (String field : List.of("request_id", "url", "host")) {
            outcome.set(field, request.get(field));
        }
        outcome.put("crawled_at", System.currentTimeMillis() / 1000.0);
        HttpRequest page;
        try {
            page = HttpRequest.newBuilder(address(request.get("url").asText())).build();
        } catch (IllegalArgumentException error) { // no URL for Java, as of a host with `_`
            return CompletableFuture.completedFuture(outcome);
        }
        var sent = WEB.sendAsync(page, head -> {
            if (head.statusCode() / 100 == 2) { // the host has answered, also where the body fails
                outcome.put("http_status", head.statusCode());
            }
            return new Digest();
        });
        // HttpRequest's own time-out ends with the headers.
        return sent.thenApply(answer -> found(outcome, answer))
                .orTimeout(PATIENCE_SECONDS, TimeUnit.SECONDS)
                .exceptionally(error -> {
                    sent.cancel(true);
                    return outcome;
                });
    }

    /** A body's digest, as it comes; one that is too large fails. */
    static class Digest implements HttpResponse.BodySubscriber<String> {
        final CompletableFuture<String> whole = new CompletableFuture<>();
        final MessageDigest digest = sha256();
        Flow.Subscription coming;
        long bytes;

        public CompletionStage<String> getBody() {
            return whole;
        }

        public void onSubscribe(Flow.Subscription subscription) {
            coming = subscription;
            coming.request(Long.MAX_VALUE);
        }

        public void onNext(List<ByteBuffer> parts) {
            for (ByteBuffer part : parts) {
                bytes += part.remaining();
                digest.update(part);
            }
            if (bytes > MOST_BYTES) {
                coming.cancel();
                whole.completeExceptionally(new IllegalStateException("too large"));
            }
        }

        public void onError(Throwable error) {
            whole.completeExceptionally(error);
        }

        public void onComplete() {
            whole.complete(HexFormat.of().formatHex(digest.digest()));
        }
    }

    /** A URL as java.net.URI takes it: in path and query the URL standard lets more pass. */
    static URI address(String url) {
        int path = url.indexOf('/', "https://".length());
        return URI.create(url.substring(0, path) + ODD.matcher(url.substring(path))
                .replaceAll(odd -> "%%%02X".formatted((int) odd.group().charAt(0))));
    }

    static ObjectNode found(ObjectNode outcome, HttpResponse<String> answer) {
        int status = answer.statusCode();
        outcome.put("http_status", status);
        if (status == 404 || status == 410) {
            outcome.put("result", "gone");
        } else if (status / 100 == 2) {
            outcome.remove("result");
            outcome.put("digest", answer.body());
        } else if (first(answer) != answer && !host(answer).equals(outcome.get("host").asText())) {
            // That another host is busy or broken is nothing that the page's own is left alone for.
            outcome.put("http_status", first(answer).statusCode());
        } else {
            answer.headers().firstValue("Retry-After").filter(text -> text.matches("\\d{1,9}"))
                    .ifPresent(text -> outcome.put("retry_after_seconds", Integer.parseInt(text)));
        }
        return outcome;
    }

    /** What the page's own host said, whatever redirects led to. */
    static HttpResponse<String> first(HttpResponse<String> answer) {
        return answer.previousResponse().map(Crawler::first).orElse(answer);
    }

    /** A host as Freshet names it: without the usual port. */
    static String host(HttpResponse<String> answer) {
        String name = answer.uri().getRawAuthority().toLowerCase();
        String usual = answer.uri().getScheme().equals("https") ? ":443" : ":80";
        return name.endsWith(usual) ? name.substring(0, name.length() - usual.length()) : name;
    }

    static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (java.security.NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    public static void main(String[] arguments) throws Exception {
        String prefix = environment("FRESHET_TOPIC_PREFIX", "");
        String servers = environment("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:9092");
        Map<String, Object> reading = Map.of("bootstrap.servers", servers,
                "group.id", prefix + "crawlers", "enable.auto.commit", "false",
                "auto.offset.reset", "earliest", "max.poll.records", "50");
        Map<String, Object> writing = Map.of("bootstrap.servers", servers, "acks", "all");
        StringDeserializer text = new StringDeserializer();
        StringSerializer bytes = new StringSerializer();
        try (var consumer = new KafkaConsumer<String, String>(reading, text, text);
                var producer = new KafkaProducer<String, String>(writing, bytes, bytes)) {
            consumer.subscribe(List.of(prefix + "crawl-requests"));
            while (true) {
                var records = consumer.poll(Duration.ofMillis(500));
                // What is late was asked for again.
                var fresh = StreamSupport.stream(records.spliterator(), false)
                        .filter(record -> parse(record.value()).get("deadline_at").asDouble() * 1000
                                > System.currentTimeMillis()).toList();
                var crawls = fresh.stream().map(record -> crawl(parse(record.value()))).toList();
                for (int n = 0; n < crawls.size(); n++) {
                    ObjectNode outcome = crawls.get(n).join();
                    var answer = new ProducerRecord<>(prefix + "crawl-outcomes",
                            outcome.get("host").asText(), outcome.toString());
                    // A request that is traced has a header, which its outcome carries back.
                    fresh.get(n).headers().headers("traceparent").forEach(answer.headers()::add);
                    producer.send(answer).get();
                }
                // Once the outcomes are there: what is not answered is read again.
                if (!records.isEmpty()) {
                    consumer.commitSync();
                }
            }
        }
    }

    static JsonNode parse(String value) {
        try {
            return JSON.readTree(value);
        } catch (java.io.IOException error) {
            throw new IllegalArgumentException(error);
        }
    }
}
