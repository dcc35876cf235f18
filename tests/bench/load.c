/* An engine and a client for measuring proxies: so cheap that the proxy is what limits.
 *
 *   load engine PORT TOKENS INTERVAL_US
 *       speaks the NIXL pull protocol: a body with "do_remote_decode":true gets KV parameters, any other an answer of
 *       TOKENS (or the body's max_tokens) tokens, one segment each, INTERVAL_US apart.
 *   load client PORT CONNECTIONS REQUESTS PROMPT_BYTES TOKENS STREAM FRESH
 *       closed loop; FRESH=1 opens a connection for each request. Prints one JSON line.
 *   load burst PORT CONNECTIONS TOKENS      all connections at once, one request each.
 *   load hold PORT CONNECTIONS TOKENS       opens streams in steps, prints `held` (or `lost ...` and ends),
 *                                             keeps reading until standard input ends.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define READ 65536
#define GROUPS 8

static char scratch[READ];

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void send_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno != EAGAIN) return;
            struct timespec pause = {0, 20000};
            nanosleep(&pause, NULL);
            continue;
        }
        data += n;
        size -= n;
    }
}

/* ---------------------------------------------------------------- engine */

struct conn {
    int fd;
    char *in;
    size_t have, room;
    long left;      /* tokens still to send */
    int usage;      /* wanted at the end */
    int group;
    struct conn *next, **prev;
};

static struct conn *streams[GROUPS];
static const char STREAM_HEAD[] =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
static const char TOKEN[] =
    "data: {\"id\":\"cmpl-b9a672d860c0bd31\",\"object\":\"text_completion\",\"created\":1795999610,\"model\":\"m\","
    "\"choices\":[{\"index\":0,\"text\":\" token\",\"logprobs\":null,\"finish_reason\":null,\"stop_reason\":null}]}\n\n";
static const char USAGE[] =
    "data: {\"id\":\"cmpl-b9a672d860c0bd31\",\"object\":\"text_completion\",\"created\":1795999610,\"model\":\"m\","
    "\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"total_tokens\":120,\"completion_tokens\":20}}\n\n";
static const char PREFILLED[] =
    "{\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"x\","
    "\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":100,\"total_tokens\":101,\"completion_tokens\":1},"
    "\"kv_transfer_params\":{\"do_remote_prefill\":true,\"do_remote_decode\":false,\"remote_block_ids\":[[42,43]],"
    "\"remote_engine_id\":\"1bdc6fee-16a7-42b1-85de-f18fbf8b3090\",\"remote_request_id\":\"cmpl-1\","
    "\"remote_host\":\"127.0.0.1\",\"remote_port\":5601,\"tp_size\":1}}";
static const char DECODED[] =
    "{\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"hello\","
    "\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":100,\"total_tokens\":120,\"completion_tokens\":20},"
    "\"kv_transfer_params\":null}";
static const char MODELS[] = "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\"}]}";

static void whole(int fd, const char *body) {
    char out[4096];
    int n = snprintf(out, sizeof out, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
                     strlen(body), body);
    send_all(fd, out, n);
}

static int chunk(char *out, const char *data) { return sprintf(out, "%zx\r\n%s\r\n", strlen(data), data); }

static void unlink_stream(struct conn *c) {
    if (c->prev) {
        *c->prev = c->next;
        if (c->next) c->next->prev = c->prev;
        c->prev = NULL;
    }
}

static void token(struct conn *c) {
    char out[2048];
    int n = chunk(out, TOKEN);
    if (--c->left == 0) {
        unlink_stream(c);
        if (c->usage) n += chunk(out + n, USAGE);
        n += chunk(out + n, "data: [DONE]\n\n");
        n += sprintf(out + n, "0\r\n\r\n");
    }
    send_all(c->fd, out, n);
}

static int has(const char *where, size_t size, const char *what) { return memmem(where, size, what, strlen(what)) != NULL; }

static long tokens_wanted(const char *body, size_t size, long otherwise) {
    const char *at = memmem(body, size, "\"max_tokens\":", 13);
    return at ? strtol(at + 13, NULL, 10) : otherwise;
}

static void serve(struct conn *c, const char *head, const char *body, size_t size, long tokens, long interval) {
    static int turn;
    if (!strncmp(head, "GET", 3)) return whole(c->fd, strstr(head, "/v1/models") ? MODELS : "{}");
    if (has(body, size, "\"do_remote_decode\":true")) return whole(c->fd, PREFILLED);
    if (!has(body, size, "\"stream\":true") && !has(body, size, "\"stream\": true")) return whole(c->fd, DECODED);
    c->left = tokens_wanted(body, size, tokens);
    c->usage = has(body, size, "\"include_usage\":true");
    send_all(c->fd, STREAM_HEAD, sizeof STREAM_HEAD - 1);
    if (!interval) {
        while (c->left) token(c);
        return;
    }
    token(c);
    if (c->left) {
        c->group = turn++ % GROUPS;
        c->next = streams[c->group];
        c->prev = &streams[c->group];
        if (c->next) c->next->prev = &c->next;
        streams[c->group] = c;
    }
}

static int engine_read(struct conn *c, long tokens, long interval) {
    for (;;) {
        if (c->room - c->have < READ) c->in = realloc(c->in, c->room = c->have + 2 * READ);
        ssize_t n = recv(c->fd, c->in + c->have, c->room - c->have - 1, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN)) return -1;
        if (n < 0) return 0;
        c->have += n;
        c->in[c->have] = 0;
        char *end;
        while ((end = memmem(c->in, c->have, "\r\n\r\n", 4)) != NULL) {
            size_t head = end - c->in + 4, length = 0;
            for (char *line = c->in; line < end; line = strchr(line, '\n') + 1)
                if (!strncasecmp(line, "content-length:", 15)) length = strtoul(line + 15, NULL, 10);
            if (c->have < head + length) break;
            serve(c, c->in, c->in + head, length, tokens, interval);
            c->have -= head + length;
            memmove(c->in, c->in + head + length, c->have);
        }
        if (c->have == 0 && c->room > 4 * READ) {
            free(c->in);
            c->in = NULL;
            c->room = 0;
        }
    }
}

static void engine(int port, long tokens, long interval) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1, poll = epoll_create1(0), group = 0;
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&where, sizeof where) || listen(listener, 4096)) die("listen");
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    if (interval) {
        long step = interval * 1000 / GROUPS;
        struct itimerspec every = {.it_interval = {step / 1000000000, step % 1000000000}};
        every.it_value = every.it_interval;
        timerfd_settime(timer, 0, &every, NULL);
        event.data.ptr = &timer;
        epoll_ctl(poll, EPOLL_CTL_ADD, timer, &event);
    }
    struct epoll_event events[256];
    for (;;) {
        int count = epoll_wait(poll, events, 256, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr == &timer) {
                uint64_t times;
                if (read(timer, &times, sizeof times) != sizeof times) continue;
                for (; times; times--, group++)
                    for (struct conn *c = streams[group % GROUPS], *next; c; c = next) {
                        next = c->next;
                        token(c);
                    }
            } else if (!events[i].data.ptr) {
                int fd;
                while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                    struct conn *c = calloc(1, sizeof *c);
                    c->fd = fd;
                    event.data.ptr = c;
                    epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
                }
            } else {
                struct conn *c = events[i].data.ptr;
                if (engine_read(c, tokens, interval) < 0) {
                    unlink_stream(c);
                    close(c->fd);
                    free(c->in);
                    free(c);
                }
            }
        }
    }
}

/* ---------------------------------------------------------------- client */

struct ask {
    int fd;
    double begun, first;
    size_t sent;
    char tail[8];       /* the last bytes, for the end of a chunked body */
    int tail_size;
    long length;        /* bytes still to come of a whole answer, -1 = chunked, -2 = head not seen */
    int bad;
};

static char *message;
static size_t message_size;
static struct sockaddr_in target;
static int poll_fd;
static double *times;
static long finished, failed, tokens_seen, bytes_seen;

static void build(long prompt, long tokens, int stream) {
    char *body = malloc(prompt + 1024);
    int n = sprintf(body, "{\"model\":\"m\",\"prompt\":\"");
    for (long i = 0; i < prompt; i++) body[n++] = i % 6 == 5 ? ' ' : 'a' + i % 23;
    n += sprintf(body + n, "\",\"max_tokens\":%ld,\"stream\":%s}", tokens, stream ? "true" : "false");
    message = malloc(n + 512);
    message_size = sprintf(message, "POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
                                    "Authorization: Bearer bench\r\nUser-Agent: bench\r\nAccept: */*\r\nContent-Length: %d\r\n\r\n", n);
    memcpy(message + message_size, body, n);
    message_size += n;
    free(body);
}

static void push(struct ask *a) {
    while (a->sent < message_size) {
        ssize_t n = send(a->fd, message + a->sent, message_size - a->sent, MSG_NOSIGNAL);
        if (n < 0) return;
        a->sent += n;
    }
}

static void begin(struct ask *a, int fresh) {
    int one = 1;
    if (fresh || a->fd < 0) {
        if (a->fd >= 0) close(a->fd);
        a->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        setsockopt(a->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (connect(a->fd, (void *)&target, sizeof target) && errno != EINPROGRESS) die("connect");
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = a};
        epoll_ctl(poll_fd, EPOLL_CTL_ADD, a->fd, &event);
    }
    a->begun = now_us();
    a->first = 0;
    a->sent = 0;
    a->length = -2;
    a->tail_size = 0;
    a->bad = 0;
    push(a);
}

/* 1 = complete, 0 = more to come, -1 = broken */
static int take(struct ask *a) {
    for (;;) {
        ssize_t n = recv(a->fd, scratch, READ - 1, 0);
        if (n < 0) return errno == EAGAIN || errno == ENOTCONN ? 0 : -1;
        if (n == 0) return -1;
        bytes_seen += n;
        char *at = scratch;
        if (a->length == -2) {
            scratch[n] = 0;
            char *end = strstr(scratch, "\r\n\r\n");
            if (!end) return -1;
            a->bad = strncmp(scratch, "HTTP/1.1 200", 12) != 0;
            char *length = strcasestr(scratch, "\r\ncontent-length:");
            a->length = length && length < end ? strtol(length + 17, NULL, 10) : -1;
            at = end + 4;
        }
        long rest = scratch + n - at;
        if (!a->first && rest) a->first = now_us();
        for (char *p = at; (p = memmem(p, scratch + n - p, "data: {", 7)) != NULL; p += 7) tokens_seen++;
        if (a->length >= 0) {
            if ((a->length -= rest) <= 0) return 1;
            continue;
        }
        if (rest >= 5) {
            memcpy(a->tail, scratch + n - 5, 5);
            a->tail_size = 5;
        } else {
            int keep = a->tail_size + rest > 5 ? 5 - (int)rest : a->tail_size;
            memmove(a->tail, a->tail + a->tail_size - keep, keep);
            memcpy(a->tail + keep, at, rest);
            a->tail_size = keep + rest;
        }
        if (a->tail_size == 5 && !memcmp(a->tail, "0\r\n\r\n", 5)) return 1;
    }
}

static int by_value(const void *a, const void *b) {
    double d = *(const double *)a - *(const double *)b;
    return d < 0 ? -1 : d > 0;
}

static int client(int connections, long requests, int fresh, int hold) {
    struct ask *asks = calloc(connections, sizeof *asks);
    struct epoll_event events[256], event = {.events = EPOLLIN, .data.ptr = NULL};
    long begun = 0, firsts = 0;
    int paced = hold ? 100 : connections;
    times = calloc(requests, sizeof *times);
    if (hold) epoll_ctl(poll_fd, EPOLL_CTL_ADD, 0, &event);
    double start = now_us();
    for (int i = 0; i < connections; i++) asks[i].fd = -1;
    for (; begun < connections && begun < requests && begun < paced; begun++) begin(&asks[begun], fresh);
    while (finished + failed < requests) {
        int count = epoll_wait(poll_fd, events, 256, 20000);
        if (count == 0 && hold && firsts < requests) {
            printf("lost after %ld of %ld: nothing came for 20 s\n", firsts, requests);
            return 1;
        }
        if (count == 0) {
            failed += begun - finished - failed;
            break;
        }
        for (int i = 0; i < count; i++) {
            struct ask *a = events[i].data.ptr;
            if (!a) return 0;
            if (a->sent < message_size) push(a);
            int had = a->first != 0, done = take(a);
            if (hold && !had && a->first) {
                if (++firsts == requests) {
                    printf("held\n");
                    fflush(stdout);
                }
                if (begun < connections) begin(&asks[begun], fresh), begun++;
            }
            if (!done) continue;
            if (hold && !had && (done < 0 || a->bad)) {
                printf("lost after %ld of %ld: %s\n", firsts, requests, done < 0 ? "connection lost" : "no 200");
                return 1;
            }
            if (done < 0 || a->bad) {
                failed++;
                close(a->fd);
                a->fd = -1;
            } else {
                times[finished++] = a->first - a->begun;
            }
            if (!hold && begun < requests) begin(a, fresh), begun++;
        }
    }
    double seconds = (now_us() - start) / 1e6;
    qsort(times, finished, sizeof *times, by_value);
    double p50 = finished ? times[finished / 2] : 0, p99 = finished ? times[finished * 99 / 100] : 0;
    double last = finished ? times[finished - 1] : 0;
    printf("{\"requests\":%ld,\"failed\":%ld,\"seconds\":%.6f,\"tokens\":%ld,\"bytes\":%ld,\"ttft_p50_us\":%.1f,"
           "\"ttft_p99_us\":%.1f,\"ttft_max_us\":%.1f}\n",
           finished, failed, seconds, tokens_seen, bytes_seen, p50, p99, last);
    return failed != 0;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    long a[8] = {0};
    for (int i = 2; i < argc && i < 10; i++) a[i - 2] = atol(argv[i]);
    if (!strcmp(argv[1], "engine")) engine(a[0], a[1], a[2]);
    target = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(a[0]), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    poll_fd = epoll_create1(0);
    if (!strcmp(argv[1], "client")) {
        build(a[3], a[4], a[5]);
        return client(a[1], a[2], a[6], 0);
    }
    build(600, a[2], 1);
    if (!strcmp(argv[1], "burst")) return client(a[1], a[1], 0, 0);
    if (!strcmp(argv[1], "hold")) return client(a[1], a[1], 0, 1);
    return 2;
}
