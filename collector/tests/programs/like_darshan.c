#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
static int inits, sends, finals, opens, reads, writes, forks, waits;
static pid_t owner;
#define NEXT(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
int PMPI_Init(int *, char ***);
int PMPI_Finalize(void);
int PMPI_Send(const void *, int, void *, int, int, void *);
int open(const char *, int, ...);
ssize_t read(int, void *, size_t);
ssize_t write(int, const void *, size_t);
pid_t fork(void);
pid_t waitpid(pid_t, int *, int);
pid_t getpid(void);
int MPI_Init(int *c, char ***v) { NEXT(PMPI_Init); inits++; return real(c, v); }
int MPI_Finalize(void) { NEXT(PMPI_Finalize); finals++; return real(); }
int MPI_Send(const void *b, int n, void *t, int to, int tag, void *c) { NEXT(PMPI_Send); sends++; return real(b, n, t, to, tag, c); }
static int is_of_test(const char *path) { const char *end = path; while (*end) end++; return end - path > 5 && end[-5] == '.' && end[-4] == 't'; }
static int watched = -2;
int open(const char *path, int flags, ...) {
    NEXT(open);
    va_list list;
    va_start(list, flags);
    int mode = va_arg(list, int), file = real(path, flags, mode);
    va_end(list);
    if (is_of_test(path)) { opens++; watched = file; }
    return file;
}
ssize_t read(int f, void *b, size_t n) { NEXT(read); reads += f == watched; return real(f, b, n); }
ssize_t write(int f, const void *b, size_t n) { NEXT(write); writes += f == watched; return real(f, b, n); }
pid_t fork(void) { NEXT(fork); forks++; return real(); }
pid_t waitpid(pid_t p, int *s, int o) { NEXT(waitpid); waits++; return real(p, s, o); }
__attribute__((constructor)) static void begin(void) { owner = getpid(); }
__attribute__((destructor)) static void end(void) {
    if (getpid() == owner && sends)
        fprintf(stderr, "darshan: %d %d %d, %d %d %d, forks >= 5: %d, waits >= 5: %d\n", inits, sends, finals, opens, reads, writes, forks >= 5, waits >= 5);
}
