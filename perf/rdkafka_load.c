/* A load by librdkafka: produce N records and wait for every delivery report, or consume N from the beginning.
 *
 *   rdkafka_load produce HOST:PORT TOPIC PARTITIONS RECORDS SIZE CODEC ACKS LINGER_MS [idempotent|COMMIT_MS]
 *   rdkafka_load consume HOST:PORT TOPIC PARTITIONS RECORDS [ISOLATION_LEVEL]
 *
 * With COMMIT_MS the producer is transactional, and commits at this interval. CAFILE@HOST:PORT: over TLS.
 * Prints one JSON object: records, bytes, errors, seconds (first call to last report or record), cpu_seconds (ours).
 */
#include <librdkafka/rdkafka.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { CHUNK = 1000, VALUES = 1024, OPEN_MAX = 500000, STALL_SECONDS = 60 };

static int64_t delivered, bytes, errors;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void die(const char *what, const char *why) {
    fprintf(stderr, "rdkafka_load: %s: %s\n", what, why);
    exit(1);
}

static void set(rd_kafka_conf_t *conf, const char *key, const char *value) {
    char why[512];
    if (rd_kafka_conf_set(conf, key, value, why, sizeof why) != RD_KAFKA_CONF_OK) die(key, why);
}

static void on_report(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    delivered++;
    if (message->err && errors++ == 0) fprintf(stderr, "rdkafka_load: %s\n", rd_kafka_err2str(message->err));
    else if (!message->err) bytes += (int64_t)message->len;
}

/* Values as a log line has them: some fields repeat, some do not; compressible about twofold. */
static char *make_values(size_t size) {
    static const char fixed[] = "{\"level\":\"info\",\"service\":\"checkout\",\"path\":\"/api/v1/orders\",\"id\":\"";
    char *values = malloc(VALUES * size);
    uint64_t state = 88172645463325252u;
    if (!values) die("malloc", "out of memory");
    for (size_t i = 0; i < VALUES * size; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        size_t at = i % size % 128;
        values[i] = at < sizeof fixed - 1 ? fixed[at] : (char)("0123456789abcdef"[state % 16]);
    }
    return values;
}

static void set_address(rd_kafka_conf_t *conf, char *address) {
    char *at = strchr(address, '@');
    if (at) {
        *at = 0;
        set(conf, "security.protocol", "ssl");
        set(conf, "ssl.ca.location", address);
        address = at + 1;
    }
    set(conf, "bootstrap.servers", address);
}

static rd_kafka_topic_t *open_topic(rd_kafka_t *client, const char *name, int partitions, const char *acks) {
    char why[512];
    const rd_kafka_metadata_t *metadata;
    rd_kafka_topic_conf_t *conf = rd_kafka_topic_conf_new();
    if (acks && rd_kafka_topic_conf_set(conf, "acks", acks, why, sizeof why) != RD_KAFKA_CONF_OK) die("acks", why);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, name, conf);
    if (!topic) die("topic", rd_kafka_err2str(rd_kafka_last_error()));
    rd_kafka_resp_err_t failed = rd_kafka_metadata(client, 0, topic, &metadata, 10000);
    if (failed) die("metadata", rd_kafka_err2str(failed));
    int found = metadata->topic_cnt == 1 ? metadata->topics[0].partition_cnt : 0;
    if (found != partitions) die("metadata", "wrong number of partitions");
    rd_kafka_metadata_destroy(metadata);
    return topic;
}

/* Serve delivery reports, at least once, until so many have come. */
static void await_reports(rd_kafka_t *client, int64_t wanted) {
    double progress = now();
    do {
        int64_t before = delivered;
        rd_kafka_poll(client, delivered < wanted ? 100 : 0);
        if (delivered != before) progress = now();
        if (now() - progress > STALL_SECONDS) die("produce", "no delivery report for 60 s");
    } while (delivered < wanted);
}

static void done(rd_kafka_error_t *error, const char *what) {
    if (error) die(what, rd_kafka_error_string(error));
}

static double produce(rd_kafka_t *client, rd_kafka_topic_t *topic, int partitions, int64_t records, size_t size,
                      double commit_seconds) {
    rd_kafka_message_t *chunk = calloc(CHUNK, sizeof *chunk);
    char *values = make_values(size);
    int64_t sent = 0;
    if (commit_seconds > 0) {
        done(rd_kafka_init_transactions(client, 60000), "init_transactions");
        done(rd_kafka_begin_transaction(client), "begin_transaction");
    }
    double started = now(), begun = started;
    while (sent < records) {
        int count = records - sent < CHUNK ? (int)(records - sent) : CHUNK;
        for (int i = 0; i < count; i++)
            chunk[i] = (rd_kafka_message_t){.payload = values + (size_t)((sent + i) % VALUES) * size, .len = size};
        if (rd_kafka_produce_batch(topic, (int)(sent / CHUNK % partitions), 0, chunk, count) != count)
            die("produce", rd_kafka_err2str(chunk[0].err));
        sent += count;
        /* Never more than the client's queue takes: a full queue would cost this loop refusals and retries. */
        await_reports(client, sent - OPEN_MAX);
        if (commit_seconds > 0 && now() - begun > commit_seconds) {
            await_reports(client, sent);
            done(rd_kafka_commit_transaction(client, 60000), "commit_transaction");
            begun = now();
            if (sent < records) done(rd_kafka_begin_transaction(client), "begin_transaction");
            else begun = 0;
        }
    }
    await_reports(client, records);
    if (commit_seconds > 0 && begun > 0) done(rd_kafka_commit_transaction(client, 60000), "commit_transaction");
    return now() - started;
}

static double consume(rd_kafka_t *client, rd_kafka_topic_t *topic, int partitions, int64_t records) {
    rd_kafka_message_t **chunk = calloc(CHUNK, sizeof *chunk);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    double started = now(), progress = started;
    for (int p = 0; p < partitions; p++)
        if (rd_kafka_consume_start_queue(topic, p, RD_KAFKA_OFFSET_BEGINNING, queue))
            die("consume", rd_kafka_err2str(rd_kafka_last_error()));
    while (delivered < records) {
        ssize_t count = rd_kafka_consume_batch_queue(queue, 100, chunk, CHUNK);
        if (count > 0) progress = now();
        if (now() - progress > STALL_SECONDS) die("consume", "no record for 60 s");
        for (ssize_t i = 0; i < count; i++) {
            if (chunk[i]->err == 0) delivered++, bytes += (int64_t)chunk[i]->len;
            else if (chunk[i]->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) errors++;
            rd_kafka_message_destroy(chunk[i]);
        }
    }
    return now() - started;
}

int main(int argc, char **argv) {
    int producing = (argc == 10 || argc == 11) && strcmp(argv[1], "produce") == 0;
    int consuming = (argc == 6 || argc == 7) && strcmp(argv[1], "consume") == 0;
    if (!producing && !consuming) die("usage", "see the head of rdkafka_load.c");
    double commit_seconds = 0;
    char why[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set_address(conf, argv[2]);
    set(conf, producing ? "compression.codec" : "queued.min.messages", producing ? argv[7] : "1000000");
    if (producing) {
        set(conf, "linger.ms", argv[9]);
        set(conf, "queue.buffering.max.messages", "1000000");
        set(conf, "queue.buffering.max.kbytes", "2097151");
        rd_kafka_conf_set_dr_msg_cb(conf, on_report);
        if (argc == 11 && strcmp(argv[10], "idempotent") == 0) set(conf, "enable.idempotence", "true");
        else if (argc == 11) set(conf, "transactional.id", argv[3]), commit_seconds = atof(argv[10]) / 1000;
    } else if (argc == 7) set(conf, "isolation.level", argv[6]);
    rd_kafka_t *client = rd_kafka_new(producing ? RD_KAFKA_PRODUCER : RD_KAFKA_CONSUMER, conf, why, sizeof why);
    if (!client) die("client", why);
    int partitions = atoi(argv[4]);
    int64_t records = atoll(argv[5]);
    rd_kafka_topic_t *topic = open_topic(client, argv[3], partitions, producing ? argv[8] : NULL);
    double seconds = producing ? produce(client, topic, partitions, records, (size_t)atoll(argv[6]), commit_seconds)
                               : consume(client, topic, partitions, records);
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    double cpu = (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec);
    cpu += (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
    printf("{\"records\": %lld, \"bytes\": %lld, \"errors\": %lld, \"seconds\": %.6f, \"cpu_seconds\": %.3f}\n",
           (long long)delivered, (long long)bytes, (long long)errors, seconds, cpu);
    return errors == 0 ? 0 : 2;
}
