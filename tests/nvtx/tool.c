/* Stands for a profiler: NVTX loads a library that the environment names. This one records what it gets. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>

#define WORDS 1024

/* "<domain", "(range" and ")", in the order in which they came. */
char nvtx_heard[WORDS];
static size_t used;

static void hear(const char *mark, const char *name)
{
    const int n = snprintf(nvtx_heard + used, WORDS - used, "%s%s", mark, name);
    if (n > 0)
        used = used + (size_t)n < WORDS ? used + (size_t)n : WORDS - 1;
}

static int domain; /* its address is the domain's handle */

static nvtxDomainHandle_t create(const char *name)
{
    hear("<", name);
    return (nvtxDomainHandle_t)&domain;
}

static int push(nvtxDomainHandle_t of, const nvtxEventAttributes_t *range)
{
    hear("(", of == (nvtxDomainHandle_t)&domain ? range->message.ascii : "of another domain");
    return 0;
}

static int pop(nvtxDomainHandle_t of)
{
    (void)of;
    hear(")", "");
    return 0;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table_of);
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table_of)
{
    const NvtxExportTableCallbacks *const callbacks = table_of(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned int size = 0;
    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
        size <= NVTX_CBID_CORE2_DomainRangePop)
        return 0;
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
