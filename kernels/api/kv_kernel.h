/* The C ABI of a kernel plug-in: a shared object with one entry point, kv_kernel_entry, that hands
 * out a table of operations on a paged pool of keys and values. C99, no C++ types.
 *
 * Versioning: every struct opens with its own size as the writer's compiler saw it. Structs only
 * grow at the end; a reader touches a field only when struct_size covers it, and a zero or NULL
 * field means "not offered". KV_KERNEL_ABI changes only when that is not enough. Owner: the host
 * owns all memory; a plug-in keeps nothing but the host table and what it allocated through it
 * while loading. Threads: all operations may be called from several threads at once with different
 * workspaces. run, append_kv and copy_blocks do not allocate, wait or throw. Cost: one indirect
 * call for each operation and layer.
 *
 * Order of calls: entry -> score -> caps -> supports -> workspace -> prepare (each step) ->
 * append_kv and run (each layer). Keys and values of new tokens are written to the pool first; then
 * every query attends through the pool, to old and new tokens alike.
 */
#ifndef CACHESVC_KERNELS_API_KV_KERNEL_H_
#define CACHESVC_KERNELS_API_KV_KERNEL_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* C names and C enums, on purpose.
 * NOLINTBEGIN(readability-identifier-naming,performance-enum-size) */
#define KV_KERNEL_ABI 1u
#define KV_KERNEL_ENTRY_NAME "kv_kernel_entry"

#if defined(__GNUC__)
#define KV_KERNEL_EXPORT __attribute__((visibility("default")))
#else
#define KV_KERNEL_EXPORT
#endif

/* What an operation returns. */
enum {
  KV_KERNEL_OK = 0,
  KV_KERNEL_UNSUPPORTED = 1, /* this problem is beyond the declared capabilities */
  KV_KERNEL_INVALID = 2,     /* arguments contradict each other or the prepared plan */
  KV_KERNEL_FAILED = 3       /* the device refused; the log says why */
};

enum { KV_KERNEL_DEVICE_CPU = 0, KV_KERNEL_DEVICE_CUDA = 1 };

/* Operations, as bits of kv_kernel_caps.operations and one of them in kv_kernel_problem.operation.
 * Decode is an extend with one query row for each sequence; both must give equal bits. */
enum {
  KV_KERNEL_OP_DECODE = 1u << 0,
  KV_KERNEL_OP_EXTEND = 1u << 1,
  KV_KERNEL_OP_APPEND = 1u << 2,
  KV_KERNEL_OP_COPY = 1u << 3,
  KV_KERNEL_OP_TRANSCODE = 1u << 4,
  KV_KERNEL_OP_CHECKSUM = 1u << 5,
  KV_KERNEL_OP_REROPE = 1u << 6,
  KV_KERNEL_OP_MERGE = 1u << 7
};

/* Features that a problem asks for and caps offer. */
enum {
  KV_KERNEL_FEATURE_WINDOW = 1u << 0, /* window_tokens of the problem, for each layer its own */
  KV_KERNEL_FEATURE_SINK_TOKENS = 1u
                                  << 1, /* the first sink_tokens stay visible outside the window */
  KV_KERNEL_FEATURE_SINK_LOGITS = 1u << 2, /* a learned logit a head, in the normaliser only */
  KV_KERNEL_FEATURE_SOFTCAP = 1u << 3,
  KV_KERNEL_FEATURE_LATENT = 1u << 4,
  KV_KERNEL_FEATURE_TREE_MASK = 1u << 5,    /* query-by-query mask; the prefix stays implicit */
  KV_KERNEL_FEATURE_BLOCK_SCORES = 1u << 6, /* attention mass a block */
  KV_KERNEL_FEATURE_TWO_TABLES = 1u << 7,   /* sealed (quantised) and open blocks of one sequence */
  KV_KERNEL_FEATURE_LSE = 1u << 8           /* log-sum-exp of each row, in base lse_base */
};

/* The OPAQUE type is for formats that are copied and never computed on. */
enum {
  KV_KERNEL_DTYPE_F32 = 0,
  KV_KERNEL_DTYPE_F16 = 1,
  KV_KERNEL_DTYPE_BF16 = 2,
  KV_KERNEL_DTYPE_F8_E4M3 = 3,
  KV_KERNEL_DTYPE_I8 = 4,
  KV_KERNEL_DTYPE_I4 = 5,
  KV_KERNEL_DTYPE_OPAQUE = 255
};

/* Base of the logarithm in the LSE. Partial results merge only when it is the same. */
enum { KV_KERNEL_LSE_NATURAL = 0, KV_KERNEL_LSE_BASE_2 = 1 };

/* What equal inputs guarantee, each class including the ones before it. */
enum {
  KV_KERNEL_DETERMINISM_NONE = 0,
  KV_KERNEL_DETERMINISM_REPEATABLE = 1,      /* the same call again gives the same bits */
  KV_KERNEL_DETERMINISM_BATCH_INVARIANT = 2, /* ... in any batch, in any slots, in any layout */
  KV_KERNEL_DETERMINISM_CHUNK_INVARIANT = 3  /* ... and extend in any chunks equals decode */
};

enum {
  KV_KERNEL_LOG_DEBUG = 0,
  KV_KERNEL_LOG_INFO = 1,
  KV_KERNEL_LOG_WARNING = 2,
  KV_KERNEL_LOG_ERROR = 3
};

typedef void (*kv_kernel_task)(void* argument, uint32_t index);

/* What the host offers. Valid as long as the plug-in is loaded; any function may be NULL. */
typedef struct kv_kernel_host {
  uint32_t struct_size;
  uint32_t abi; /* KV_KERNEL_ABI of the host */
  void* context;
  /* Calls task(argument, i) for every i < count, in any order and on any thread; returns when all
   * are done. NULL: the plug-in loops by itself. Results must not depend on the order. */
  void (*parallel_for)(void* context, uint32_t count, kv_kernel_task task, void* argument);
  void (*log)(void* context, int32_t level, const char* message);
  /* For tables made while loading; never called by run, append_kv or copy_blocks. */
  void* (*allocate)(void* context, uint64_t bytes, uint64_t alignment);
  void (*release)(void* context, void* memory);
} kv_kernel_host;

typedef struct kv_kernel_device {
  uint32_t struct_size;
  uint32_t kind;                         /* KV_KERNEL_DEVICE_* */
  uint32_t index;                        /* which one, on this machine */
  uint32_t compute_major, compute_minor; /* CUDA; zero elsewhere */
} kv_kernel_device;

typedef struct kv_kernel_head_dims {
  uint32_t qk, vo;
} kv_kernel_head_dims;
typedef struct kv_kernel_dtypes {
  uint32_t k, v;
} kv_kernel_dtypes;

/* Declared and static: the arrays belong to the plug-in and live as long as it is loaded. A pair
 * with zeros in head_dims means "any up to head_dim_max, in steps of head_dim_step". */
typedef struct kv_kernel_caps {
  uint32_t struct_size;
  uint32_t operations; /* KV_KERNEL_OP_* */
  uint64_t features;   /* KV_KERNEL_FEATURE_* */
  const kv_kernel_head_dims* head_dims;
  const kv_kernel_dtypes* kv_dtypes;
  uint32_t head_dim_count, kv_dtype_count;
  uint32_t head_dim_max, head_dim_step;
  uint32_t group_ratio_max;                    /* query heads for one key-value head */
  uint32_t block_tokens_min, block_tokens_max; /* powers of two between these */
  uint32_t query_dtype, output_dtype;
  uint32_t lse_base;        /* KV_KERNEL_LSE_* */
  uint32_t determinism;     /* KV_KERNEL_DETERMINISM_* */
  uint32_t split_tokens;    /* keys in one split, at absolute positions; 0: does not split */
  uint32_t alignment_bytes; /* of base pointers and strides */
} kv_kernel_caps;

/* Everything about a call that does not change from step to step. */
typedef struct kv_kernel_problem {
  uint32_t struct_size;
  uint32_t operation; /* one KV_KERNEL_OP_* */
  uint64_t features;
  uint32_t layer_count;
  uint32_t query_head_count, kv_head_count;
  uint32_t head_dim_qk, head_dim_vo;
  uint32_t k_dtype, v_dtype, query_dtype, output_dtype;
  uint32_t block_tokens;
  uint32_t window_tokens, sink_tokens;
  float scale; /* of the scores, usually 1 / sqrt(head_dim_qk) */
  float softcap;
} kv_kernel_problem;

/* Keys or values of all blocks of a layer group. The address of
 * [slot][layer][head][token][0] is base + slot * block + layer * layer + head * head + token *
 * token, or layer_bases[layer] + ... where layers have base pointers of their own. Strides are in
 * bytes; channels are contiguous. */
typedef struct kv_kernel_plane {
  void* base;
  void* const* layer_bases; /* in host memory; NULL: base + layer * layer_stride */
  int64_t block_stride, layer_stride, head_stride, token_stride;
  /* Scales and zero points of quantised formats, addressed in the same way; NULL without. */
  void* scale_base;
  void* zero_base;
  int64_t scale_block_stride, scale_layer_stride, scale_head_stride, scale_token_stride;
} kv_kernel_plane;

typedef struct kv_kernel_pool {
  uint32_t struct_size;
  uint32_t slot_count; /* slots are below this */
  kv_kernel_plane k, v;
} kv_kernel_pool;

/* The sequences of one step. Rows [row_start[s], row_start[s+1]) are the queries of sequence s, at
 * its last positions: kv_length[s] counts all its tokens in the pool, the new ones included.
 * Logical block i of sequence s is slot table[s * table_stride + i]. For prepare the arrays lie in
 * host memory; for run they lie on the device, at addresses that stay fixed from step to step where
 * graphs are captured. */
typedef struct kv_kernel_batch {
  uint32_t struct_size;
  uint32_t sequence_count;
  uint32_t row_count;
  uint32_t table_stride;
  const uint32_t* row_start; /* sequence_count + 1 */
  const uint32_t* kv_length; /* sequence_count */
  const uint32_t* table;
} kv_kernel_batch;

/* Upper bounds over all steps, for workspace. */
typedef struct kv_kernel_bounds {
  uint32_t struct_size;
  uint32_t sequence_count, row_count, kv_length;
} kv_kernel_bounds;

typedef struct kv_kernel_workspace_bytes {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t device, pinned, host;
} kv_kernel_workspace_bytes;

/* Made by prepare on the host alone: plain data without pointers, so it may be sent to another
 * process and used there, once for each layer. */
typedef struct kv_kernel_plan {
  uint32_t struct_size;
  uint32_t word_count;
  uint64_t words[62];
} kv_kernel_plan;

typedef struct kv_kernel_tensors {
  uint32_t struct_size;
  uint32_t layer;
  const void* query; /* [row][query_head][head_dim_qk], contiguous */
  void* output;      /* [row][query_head][head_dim_vo], contiguous */
  float* lse;        /* [row][query_head]; NULL: not wanted */
} kv_kernel_tensors;

/* Row r of k and v, of query_dtype, goes to position row_position[r] = slot * block_tokens + token
 * in the block; a negative one is padding and skipped. This and the lists below lie where the
 * kernel runs: one on a device leaves out what lies outside the pool, a CPU refuses the call. */
typedef struct kv_kernel_append {
  uint32_t struct_size;
  uint32_t layer;
  uint32_t row_count;
  const void* k; /* [row][kv_head][head_dim_qk], contiguous */
  const void* v; /* [row][kv_head][head_dim_vo], contiguous */
  const int64_t* row_position;
} kv_kernel_append;

/* Copies the first token_count tokens of slot from[i] to slot to[i], all layers and heads. No slot
 * is in both lists. */
typedef struct kv_kernel_copy {
  uint32_t struct_size;
  uint32_t block_count;
  const uint32_t* from;
  const uint32_t* to;
  const uint32_t* token_count; /* NULL: whole blocks */
} kv_kernel_copy;

/* sums[i] becomes the sum modulo 2^64, over the 8-byte words of block slots[i], of mix(word,
 * place): place = row << 16 | index of the word in its row, row = ((layer * 2 + (0: K, 1: V)) *
 * kv_head_count + head) * block_tokens + token, and mix(w, p) is x ^ x >> 32 of x = (y ^ y >> 32) *
 * 0xD6E8FEB86659FD93 with y = w + (p + 1) * 0x9E3779B97F4A7C15. It does not depend on strides. */
typedef struct kv_kernel_checksum {
  uint32_t struct_size;
  uint32_t block_count;
  const uint32_t* slots;
  uint64_t* sums;
} kv_kernel_checksum;

/* Turns the keys of a block from old_position[i] to new_position[i] (of its first token), in place.
 */
typedef struct kv_kernel_rerope {
  uint32_t struct_size;
  uint32_t block_count;
  const uint32_t* slots;
  const uint32_t* old_position;
  const uint32_t* new_position;
  uint32_t rotary_dim;
  uint32_t interleaved; /* 1: pairs (2i, 2i+1); 0: halves */
  float theta;
  uint32_t reserved;
} kv_kernel_rerope;

/* Joins two partial results of the same rows, the earlier keys first. In place on the first. */
typedef struct kv_kernel_merge {
  uint32_t struct_size;
  uint32_t row_count;
  void* output;
  float* lse;
  const void* other_output;
  const float* other_lse;
} kv_kernel_merge;

/* The operations. `stream` is the device's queue (NULL on a CPU). Optional ones are NULL. */
typedef struct kv_kernel {
  uint32_t struct_size;
  uint32_t abi;
  const char* name; /* static */
  const char* version;
  /* 0: cannot run on this device; the highest score is preferred. */
  int32_t (*score)(const kv_kernel_device* device);
  int32_t (*caps)(const kv_kernel_device* device, kv_kernel_caps* caps);
  /* KV_KERNEL_OK, or KV_KERNEL_UNSUPPORTED with all reasons as text, cut at reason_bytes. */
  int32_t (*supports)(const kv_kernel_problem* problem, char* reason, size_t reason_bytes);
  int32_t (*workspace)(const kv_kernel_problem* problem, const kv_kernel_bounds* bounds,
                       kv_kernel_workspace_bytes* bytes);
  int32_t (*prepare)(const kv_kernel_problem* problem, const kv_kernel_batch* batch,
                     kv_kernel_plan* plan);
  /* Brings the per-step data of a captured graph to the device. Optional. */
  int32_t (*update)(const kv_kernel_problem* problem, const kv_kernel_plan* plan,
                    const kv_kernel_batch* batch, void* device_workspace, void* stream);
  int32_t (*run)(const kv_kernel_problem* problem, const kv_kernel_plan* plan,
                 const kv_kernel_pool* pool, const kv_kernel_batch* batch,
                 const kv_kernel_tensors* tensors, void* device_workspace, void* stream);
  int32_t (*append_kv)(const kv_kernel_problem* problem, const kv_kernel_pool* pool,
                       const kv_kernel_append* append, void* stream);
  int32_t (*copy_blocks)(const kv_kernel_problem* problem, const kv_kernel_pool* pool,
                         const kv_kernel_copy* copy, void* stream);
  int32_t (*transcode)(const kv_kernel_problem* from_problem, const kv_kernel_pool* from,
                       const kv_kernel_problem* to_problem, const kv_kernel_pool* to,
                       const kv_kernel_copy* copy, void* stream);
  int32_t (*checksum)(const kv_kernel_problem* problem, const kv_kernel_pool* pool,
                      const kv_kernel_checksum* checksum, void* stream);
  int32_t (*rerope)(const kv_kernel_problem* problem, const kv_kernel_pool* pool,
                    const kv_kernel_rerope* rerope, void* stream);
  int32_t (*merge)(const kv_kernel_problem* problem, const kv_kernel_merge* merge, void* stream);
} kv_kernel;

/* The entry point's type and, in a plug-in, its declaration. NULL: host->abi does not fit.
 * requires: host outlives the plug-in's use. */
typedef const kv_kernel* (*kv_kernel_entry_function)(const kv_kernel_host* host);
KV_KERNEL_EXPORT const kv_kernel* kv_kernel_entry(const kv_kernel_host* host);
/* NOLINTEND(readability-identifier-naming,performance-enum-size) */

#ifdef __cplusplus
}
#endif

#endif /* CACHESVC_KERNELS_API_KV_KERNEL_H_ */
