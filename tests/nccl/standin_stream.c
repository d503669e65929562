/* Captured streams of the stand-in. A graph has the calls that the stand-in itself carries out, and those that cecl
 * serves; the latter are captured on one stream of the host device for each communicator of cecl. A launch carries out
 * the stand-in's calls first. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

#define PARTS 8
#define BATCHES 64

/* The captured calls that cecl serves on one of its communicators. */
struct part {
    ceclComm_t ours;
    ceclStream_t stream;
    ceclGraph_t graph;
};

struct standin_graph {
    struct part parts[PARTS];
    int nparts;
    struct op *batches[BATCHES]; /* lists of ops that are carried out together */
    int nbatches;
};

struct CUstream_st {
    struct CUstream_st *next;
    struct standin_graph *graph; /* the graph that it captures; NULL: none */
    struct part used[PARTS];     /* the streams of the host device that this stream has used */
    int nused;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUstream_st *streams;

/* Returns NULL for other addresses, which tests may pass as streams. */
static struct CUstream_st *find(cudaStream_t stream)
{
    pthread_mutex_lock(&lock);
    struct CUstream_st *at = streams;
    while (at && at != stream)
        at = at->next;
    pthread_mutex_unlock(&lock);
    return at;
}

cudaStream_t standin_stream(void)
{
    struct CUstream_st *stream = calloc(1, sizeof(*stream));
    pthread_mutex_lock(&lock);
    stream->next = streams;
    streams = stream;
    pthread_mutex_unlock(&lock);
    return stream;
}

#define STRING_OF(x) #x
#define STRING(x) STRING_OF(x)

/* A function of the cecl library that the library in NCCL's place has loaded. */
static void *cecl(const char *name)
{
    void *library =
        dlopen("libcecl.so." STRING(CECL_MAJOR) "." STRING(CECL_MINOR), RTLD_NOW | RTLD_NOLOAD);
    return library ? dlsym(library, name) : NULL;
}
#define CECL(name) (__extension__(__typeof__(name) *) cecl(#name))

void standin_capture(cudaStream_t stream)
{
    stream->graph = calloc(1, sizeof(*stream->graph));
}

/* Returns the same stream each time: cecl frees it with its communicator. */
static ceclStream_t stream_for(struct CUstream_st *stream, ceclComm_t ours)
{
    for (int i = 0; i < stream->nused; i++)
        if (stream->used[i].ours == ours)
            return stream->used[i].stream;
    struct part *part = &stream->used[stream->nused];
    part->ours = ours;
    if (stream->nused == PARTS || CECL(ceclStreamCreate)(ours, &part->stream) != ceclSuccess)
        return NULL;
    stream->nused++;
    return part->stream;
}

/* The library under test calls this. */
ceclStream_t cecl_standin_stream(ceclComm_t ours, cudaStream_t stream)
{
    struct CUstream_st *on = find(stream);
    struct standin_graph *graph = on ? on->graph : NULL;
    for (int i = 0; graph && i < graph->nparts; i++)
        if (graph->parts[i].ours == ours)
            return graph->parts[i].stream;
    const ceclStream_t made = graph && graph->nparts < PARTS ? stream_for(on, ours) : NULL;
    if (!made || CECL(ceclStreamBeginCapture)(ours, made) != ceclSuccess)
        return NULL;
    graph->parts[graph->nparts++] = (struct part){ours, made, NULL};
    return made;
}

bool standin_captures(struct op *list)
{
    struct CUstream_st *on = list ? find(list->stream) : NULL;
    if (!on || !on->graph || on->graph->nbatches == BATCHES)
        return false;
    on->graph->batches[on->graph->nbatches++] = list;
    return true;
}

struct standin_graph *standin_end_capture(cudaStream_t stream)
{
    struct standin_graph *graph = stream->graph;
    stream->graph = NULL;
    for (int i = 0; i < graph->nparts; i++) {
        struct part *part = &graph->parts[i];
        if (CECL(ceclStreamEndCapture)(part->ours, part->stream, &part->graph) != ceclSuccess)
            return NULL;
    }
    return graph;
}

int standin_passed(const struct standin_graph *graph)
{
    return graph->nbatches;
}

static struct op *copy_of(const struct op *op)
{
    struct op *copy = malloc(sizeof(*copy));
    const size_t bytes = (size_t)op->comm->nranks * (op->bytes ? op->bytes : 1);
    *copy = *op;
    copy->next = NULL;
    if (!op->staging)
        return copy;
    copy->staging = malloc(bytes);
    for (int i = 0; i < copy->ntransfers; i++) {
        const size_t offset = (size_t)(copy->transfers[i].at - op->staging);
        if (!copy->transfers[i].sends && offset < bytes)
            copy->transfers[i].at = copy->staging + offset;
    }
    return copy;
}

static ncclResult_t replay(const struct op *list)
{
    struct op *first = NULL, **end = &first;
    for (; list; list = list->next, end = &(*end)->next)
        *end = copy_of(list);
    return standin_carry_out(first);
}

ncclResult_t standin_launch(struct standin_graph *graph)
{
    ncclResult_t result = ceclSuccess;
    for (int i = 0; i < graph->nbatches && result == ceclSuccess; i++)
        result = replay(graph->batches[i]);
    for (int i = 0; i < graph->nparts && result == ceclSuccess; i++) {
        const struct part *part = &graph->parts[i];
        result = (ncclResult_t)CECL(ceclGraphLaunch)(part->graph, part->stream);
    }
    for (int i = 0; i < graph->nparts && result == ceclSuccess; i++) {
        const struct part *part = &graph->parts[i];
        result = (ncclResult_t)CECL(ceclStreamSynchronize)(part->ours, part->stream);
    }
    return result;
}

void standin_graph_free(struct standin_graph *graph)
{
    if (!graph)
        return;
    for (int i = 0; i < graph->nparts; i++)
        CECL(ceclGraphDestroy)(graph->parts[i].graph);
    for (int i = 0; i < graph->nbatches; i++)
        standin_drop(graph->batches[i]);
    free(graph);
}

void standin_stream_free(cudaStream_t stream)
{
    pthread_mutex_lock(&lock);
    struct CUstream_st **at = &streams;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    pthread_mutex_unlock(&lock);
    free(stream);
}
