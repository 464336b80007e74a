/* The last code of Burnish's own that runs in a sandbox, between bubblewrap and the program.
 *
 * What this file is: it puts the program under Landlock, which must happen after the mounts, and starts it.
 *   step RULE... -- PROGRAM [ARGUMENT...]
 * A RULE is l:PATH (list), r:PATH (read and execute), d:PATH (read and write what is there) or w:PATH (all but making
 * devices); nothing else of the file system is reachable, and signals and abstract sockets do not leave.
 * What it is not: needed where the kernel has no Landlock; it is then not used. It ends with 125 if a rule cannot be
 * set, 126 if the program cannot be run and 127 if there is none.
 *
 * Source: the Linux kernel's Documentation/userspace-api/landlock.rst. Numbers are written out, since the headers of a
 * distribution may be older than its kernel.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CREATE_RULESET 444
#define ADD_RULE 445
#define RESTRICT_SELF 446

#define EXECUTE (1ULL << 0)
#define WRITE_FILE (1ULL << 1)
#define READ_FILE (1ULL << 2)
#define READ_DIR (1ULL << 3)
#define MAKE_CHAR (1ULL << 6)
#define MAKE_BLOCK (1ULL << 11)
#define TRUNCATE (1ULL << 14)
#define IOCTL_DEV (1ULL << 15)

struct ruleset {
    uint64_t fs, net, scoped;
};

struct __attribute__((packed)) beneath {
    uint64_t allowed;
    int32_t parent;
};

static int fail(const char *what, int code)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    return code;
}

/* Of the file system's accesses, those that this version of Landlock knows. */
static uint64_t known(int version)
{
    int bits = version >= 5 ? 16 : version >= 3 ? 15 : version == 2 ? 14 : 13;
    return (1ULL << bits) - 1;
}

static uint64_t wanted(char kind, uint64_t all)
{
    switch (kind) {
    case 'l':
        return READ_DIR;
    case 'r':
        return EXECUTE | READ_FILE | READ_DIR;
    case 'd':
        return (READ_FILE | WRITE_FILE | READ_DIR | TRUNCATE | IOCTL_DEV) & all;
    case 'w':
        return all & ~(MAKE_CHAR | MAKE_BLOCK);
    default:
        return 0;
    }
}

static int restrict_self(char **rules, int count)
{
    int version = (int)syscall(CREATE_RULESET, NULL, 0, 1);
    if (version < 1)
        return -1;
    struct ruleset set = {known(version), 0, version >= 6 ? 3 : 0};
    size_t size = version >= 6 ? 24 : version >= 4 ? 16 : 8;
    int ruleset = (int)syscall(CREATE_RULESET, &set, size, 0);
    if (ruleset < 0)
        return -1;
    for (int i = 0; i < count; i++) {
        struct beneath rule = {wanted(rules[i][0], set.fs), -1};
        if (!rule.allowed || rules[i][1] != ':') {
            errno = EINVAL;
            return -1;
        }
        rule.parent = open(rules[i] + 2, O_PATH | O_CLOEXEC);
        if (rule.parent < 0)
            return -1;
        if (syscall(ADD_RULE, ruleset, 1, &rule, 0))
            return -1;
        close(rule.parent);
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(RESTRICT_SELF, ruleset, 0))
        return -1;
    return close(ruleset);
}

int main(int argc, char **argv)
{
    int end = 1;
    while (end < argc && strcmp(argv[end], "--"))
        end++;
    if (end + 1 >= argc) {
        errno = EINVAL;
        return fail("step", 125);
    }
    if (restrict_self(argv + 1, end - 1))
        return fail("Landlock", 125);
    char **program = argv + end + 1;
    execvp(program[0], program);
    return fail(program[0], errno == ENOENT ? 127 : 126);
}
