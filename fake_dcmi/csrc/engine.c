/*
 * The image and its neighbours: opening it, what this process may see of it, scripted behaviour,
 * the call log, and the socket over which changes go to the simulator.
 */
#include "engine.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_WITHIN_S 5
#define HANG_LOOK_NS 200000000L

_Atomic(const struct opened *) dcmi_image;
_Atomic(const struct view *) dcmi_view;

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static char image_name[PATH_MAX];
static dev_t image_dev;
static ino_t image_ino;
static uint64_t image_size;
static char program[16];
static pid_t own_pid; /* kept, since a system call would cost more than the whole note */

/* The image's path: the environment, else a fixed place in the root this library lies in. */
static bool image_path(char *path, size_t size)
{
    static const char *const places[] = {"/usr/local/Ascend/driver/", "/usr/local/dcmi/"};
    const char *named = getenv("NPU_TESTBED_IMAGE");
    Dl_info info;

    if (named != NULL && named[0] != '\0')
        return snprintf(path, size, "%s", named) < (int)size;
    if (dladdr((void *)&open_image, &info) == 0 || info.dli_fname == NULL)
        return false;
    char self[PATH_MAX];
    if (realpath(info.dli_fname, self) == NULL)
        return false;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const char *found = strstr(self, places[i]);
        if (found != NULL)
            return snprintf(path, size, "%.*s/run/npu-testbed/hardware.img", (int)(found - self),
                            self) < (int)size;
    }
    return false;
}

static bool is_valid(const unsigned char *base, uint64_t size)
{
    const struct image_header *header = header_of(base);

    return header->magic == IMAGE_MAGIC && header->version == IMAGE_VERSION &&
           header->header_size == sizeof(struct image_header) &&
           header->node_size == sizeof(struct node_block) &&
           header->script_size == sizeof(struct script_block) &&
           header->chip_size == sizeof(struct chip_block) &&
           header->event_size == sizeof(struct image_event) && header->total_size == size &&
           header->chip_count <= IMAGE_MAX_CHIPS &&
           size == IMAGE_CHIPS_AT + header->chip_count * sizeof(struct chip_block);
}

static unsigned char *open_call_log(const char *image)
{
    char path[PATH_MAX + 8];
    struct stat facts;
    unsigned char *found = NULL;

    if (snprintf(path, sizeof path, "%s.calls", image) >= (int)sizeof path)
        return NULL;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size == CALLS_SIZE) {
        unsigned char *log = mmap(NULL, CALLS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (log != MAP_FAILED) {
            const struct call_header *header = (const struct call_header *)(const void *)log;
            if (header->magic == CALL_MAGIC && header->slots == CALL_SLOTS &&
                header->call_size == sizeof(struct call_record))
                found = log;
            else
                munmap(log, CALLS_SIZE);
        }
    }
    close(fd);
    snprintf(program, sizeof program, "%s", program_invocation_short_name);
    return found;
}

/* ---- what a container sees */

static uint64_t hash_of(const char *text)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */

    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

/* A privileged container may do what the host may. The variable is for tests that run as root. */
static bool has_system_rights(void)
{
    const char *told = getenv("NPU_TESTBED_PRIVILEGED");

    if (told != NULL && strcmp(told, "0") == 0)
        return false;
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];

    if (syscall(SYS_capget, &header, data) != 0)
        return false;
    return (data[0].effective & (1u << CAP_SYS_ADMIN)) != 0;
}

/* Device files decide what a container has, as in a real driver; a held chip refuses all others. */
static int make_view(const struct opened *image, const char *container)
{
    const unsigned char *base = image->base;
    char dev[PATH_MAX + 16];
    size_t root = strlen(image_name);
    static const char tail[] = "/run/npu-testbed/hardware.img";
    uint64_t self = hash_of(container);
    struct view *view = calloc(1, sizeof *view);
    const char *shown = getenv("NPU_TESTBED_DEV");

    if (view == NULL)
        return INNER_ERROR;
    view->is_privileged = has_system_rights();
    if (shown != NULL)
        snprintf(dev, sizeof dev, "%s", shown);
    else if (root > sizeof tail - 1 && strcmp(image_name + root - (sizeof tail - 1), tail) == 0)
        snprintf(dev, sizeof dev, "%.*s/dev", (int)(root - (sizeof tail - 1)), image_name);
    else
        snprintf(dev, sizeof dev, "/dev");
    memset(view->logic_ids, -1, sizeof view->logic_ids);
    uint32_t seen;
    const struct image_node *node = look_at_node(node_of(base), &seen);
    int code = OK;
    for (unsigned int logic = 0; logic < IMAGE_MAX_IDS && code == OK; logic++) {
        unsigned int index = GET(node->by_logic[logic]);
        if (index >= image->chips)
            continue;
        const struct chip_block *block = chip_block_at(base, index);
        const struct image_chip *chip = look_at_chip(block, &seen);
        char file[PATH_MAX + 64];
        snprintf(file, sizeof file, "%s/davinci%u", dev, GET(chip->phy_id));
        if (!view->is_privileged && access(file, F_OK) != 0)
            continue;
        uint64_t holder = GET(chip->holder);
        if (holder != 0 && holder != self && !view->is_privileged)
            code = GET(node->busy_code) != 0 ? GET(node->busy_code) : INNER_ERROR;
        view->logic_ids[index] = (int16_t)view->count;
        view->chips[view->count++] = (uint16_t)index;
    }
    if (code == OK && view->count == 0)
        code = INNER_ERROR;
    if (code != OK) {
        free(view);
        return code;
    }
    /* An MCU shows with the first chip of its card. */
    for (unsigned int index = 0; index < image->chips; index++) {
        const struct image_chip *chip = look_at_chip(chip_block_at(base, index), &seen);
        if (GET(chip->unit) == UNIT_NPU)
            continue;
        for (unsigned int i = 0; i < view->count; i++) {
            uint32_t other;
            const struct image_chip *npu =
                look_at_chip(chip_block_at(base, view->chips[i]), &other);
            if (GET(npu->card_id) == GET(chip->card_id))
                view->logic_ids[index] = (int16_t)IMAGE_MAX_IDS;
        }
    }
    atomic_store(&dcmi_view, view); /* an older one stays: a call may be reading it */
    return OK;
}

static void forget_pid(void)
{
    own_pid = getpid();
}

int open_image(void)
{
    static bool is_watching_forks;
    struct stat facts;
    int result = INNER_ERROR;

    pthread_mutex_lock(&open_lock);
    if (!is_watching_forks)
        is_watching_forks = pthread_atfork(NULL, NULL, forget_pid) == 0;
    own_pid = getpid();
    int fd = image_path(image_name, sizeof image_name) ? open(image_name, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        goto out;
    if (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode) ||
        (uint64_t)facts.st_size < IMAGE_CHIPS_AT)
        goto close_out;
    const struct opened *image = atomic_load(&dcmi_image);
    bool is_known = image != NULL && facts.st_dev == image_dev && facts.st_ino == image_ino &&
                    (uint64_t)facts.st_size == image_size;
    if (!is_known) {
        uint64_t size = (uint64_t)facts.st_size;
        unsigned char *fresh = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
        if (fresh == MAP_FAILED)
            goto close_out;
        struct opened *made = malloc(sizeof *made);
        if (made == NULL || !is_valid(fresh, size)) {
            free(made);
            munmap(fresh, size);
            goto close_out;
        }
        made->base = fresh;
        made->log = open_call_log(image_name);
        made->chips = (unsigned int)((size - IMAGE_CHIPS_AT) / sizeof(struct chip_block));
        image = made;
    }
    const char *container = getenv("NPU_TESTBED_CONTAINER");
    result = OK;
    if (container != NULL && container[0] != '\0')
        result = make_view(image, container);
    if (result != OK)
        goto close_out;
    /* An older mapping stays: another thread may be reading it. */
    image_dev = facts.st_dev;
    image_ino = facts.st_ino;
    image_size = (uint64_t)facts.st_size;
    atomic_store(&dcmi_image, image);
close_out:
    close(fd);
out:
    if (result != OK)
        atomic_store(&dcmi_image, NULL);
    pthread_mutex_unlock(&open_lock);
    return result;
}

/* ---- scripted behaviour */

static uint64_t mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u; /* splitmix64 */
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static void hang(const struct call *call)
{
    const struct image_header *header = header_of(call->base);
    uint32_t word = __atomic_load_n(&header->release_word, __ATOMIC_ACQUIRE);
    const struct timespec limit = {0, HANG_LOOK_NS};

    while (__atomic_load_n(&header->release_word, __ATOMIC_ACQUIRE) == word)
        syscall(SYS_futex, &header->release_word, FUTEX_WAIT, word, &limit, NULL, 0);
}

/* Follow the first rule that fits; true when it settled the answer. */
bool obey_script(struct call *call)
{
    /* Counted here, in this process; a slot's count starts again with another rule's number. */
    static struct {
        _Atomic uint32_t rule;
        _Atomic uint32_t count;
    } seen_calls[IMAGE_MAX_RULES];
    const struct script_block *block =
        (const struct script_block *)(const void *)(call->base + IMAGE_SCRIPT_AT);
    uint32_t seen;
    unsigned int looks = 0;
    struct image_script script;

    do {
        seen = __atomic_load_n(&block->sequence, __ATOMIC_ACQUIRE);
        copy_words(&script, &block->copy[seen & 1u], sizeof script);
    } while (is_stale(&block->sequence, seen, &looks, &call->code));
    for (unsigned int i = 0; i < script.count && i < IMAGE_MAX_RULES; i++) {
        const struct image_rule *rule = &script.rules[i];
        if (rule->function >= 0 && (unsigned)rule->function != call->function)
            continue;
        if (rule->card_id >= 0 && rule->card_id != call->card_id)
            continue;
        if (rule->device_id >= 0 && rule->device_id != call->device_id)
            continue;
        if (atomic_load(&seen_calls[i].rule) != rule->number) {
            atomic_store(&seen_calls[i].count, 0);
            atomic_store(&seen_calls[i].rule, rule->number);
        }
        uint32_t count = atomic_fetch_add(&seen_calls[i].count, 1) + 1;
        if (count < rule->first || (rule->last != 0 && count > rule->last))
            continue;
        if (rule->chance != 0 && (uint32_t)(mix(rule->seed ^ mix(count)) >> 32) >= rule->chance)
            continue;
        if (rule->delay_us != 0) {
            struct timespec pause = {rule->delay_us / 1000000u,
                                     (long)(rule->delay_us % 1000000u) * 1000};
            while (nanosleep(&pause, &pause) != 0 && errno == EINTR)
                ;
        }
        if (rule->hang)
            hang(call);
        call->code = rule->code;
        return rule->code != OK;
    }
    return false;
}

/* ---- the call log */

void note_call(const struct call *call)
{
    struct timespec now;

    if (call->log == NULL)
        return;
    struct call_header *header = (struct call_header *)(void *)call->log;
    uint64_t number = __atomic_fetch_add(&header->count, 1, __ATOMIC_RELAXED);
    struct call_record *slot = (struct call_record *)(void *)(call->log + sizeof *header) +
                               number % CALL_SLOTS;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    __atomic_store_n(&slot->number, 0, __ATOMIC_RELEASE);
    slot->at_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    slot->pid = own_pid;
    slot->code = call->code;
    slot->function = (int32_t)call->function;
    slot->card_id = call->card_id;
    slot->device_id = call->device_id;
    memcpy(slot->program, program, sizeof slot->program);
    __atomic_store_n(&slot->number, number + 1, __ATOMIC_RELEASE);
}

/* ---- changes */

static bool send_all(int fd, const void *from, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t sent = send(fd, (const char *)from + done, size - done, MSG_NOSIGNAL);
        if (sent <= 0 && errno != EINTR)
            return false;
        done += sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

static bool receive_all(int fd, void *to, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = recv(fd, (char *)to + done, size - done, 0);
        if (got == 0 || (got < 0 && errno != EINTR))
            return false;
        done += got > 0 ? (size_t)got : 0;
    }
    return true;
}

/* A socket's path may be longer than an address holds, so it is reached through its directory. */
static int connect_to_simulator(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char copy[PATH_MAX];
    struct timeval limit = {ANSWER_WITHIN_S, 0};

    snprintf(copy, sizeof copy, "%s", image_name);
    char *slash = strrchr(copy, '/');
    if (slash == NULL)
        return -1;
    *slash = '\0';
    int dir = open(copy[0] ? copy : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        int size = snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%.60s.sock",
                            dir, slash + 1);
        if (size >= (int)sizeof address.sun_path ||
            connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
            close(fd);
            fd = -1;
        }
    }
    close(dir);
    return fd;
}

/* Have the simulator carry the call out. Nobody there: the driver's unspecific error. */
int ask_simulator(struct call *call, const void *in, size_t in_size, void *out, size_t out_size)
{
    bool is_guest = call->view != NULL && !call->view->is_privileged;
    struct change_request request = {
        .function = call->function,
        .card_id = call->card_id,
        .device_id = call->device_id,
        .is_privileged = !is_guest,
        .size = (uint32_t)in_size,
    };
    struct change_reply reply;
    unsigned char spare[256];

    uint32_t refused = header_of(call->base)->container_codes[call->function];
    if (is_guest && refused != 0)
        return -(int)refused;
    if (header_of(call->base)->needs_root[call->function] && geteuid() != 0)
        return NOT_PERMITTED;
    int fd = connect_to_simulator();
    if (fd < 0)
        return INNER_ERROR;
    int result = INNER_ERROR;
    if (send_all(fd, &request, sizeof request) && (in_size == 0 || send_all(fd, in, in_size)) &&
        receive_all(fd, &reply, sizeof reply)) {
        result = reply.code;
        size_t taken = reply.size < out_size ? reply.size : out_size;
        if (reply.size > MAX_MESSAGE || (taken > 0 && !receive_all(fd, out, taken)))
            result = INNER_ERROR;
        for (size_t rest = reply.size - taken; result == OK && rest > 0;) {
            size_t step = rest < sizeof spare ? rest : sizeof spare;
            if (!receive_all(fd, spare, step))
                result = INNER_ERROR;
            rest -= step;
        }
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        result = TIME_OUT;
    }
    close(fd);
    return result;
}

/* A text into a buffer of `size` bytes; too small refuses. */
int place_text(const char *from, size_t from_size, char *to, long size)
{
    size_t length = strnlen(from, from_size);

    if (size < 0 || (size_t)size <= length)
        return INVALID_PARAMETER;
    memcpy(to, from, length);
    to[length] = '\0';
    return OK;
}
