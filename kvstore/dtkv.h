/* libdtkv: the C interface of the kvstore. Opaque handles, pointers and counts; no C++ types, no
 * exceptions across the border. A C++ face is in kvstore/kvstore.h.
 *
 * Every function that can fail returns 0 or a DTKV_* error; dtkv_last_error() then has a sentence
 * for a person (thread-local, valid until the thread's next call).
 *
 * Threads: one store may be used from one thread at a time. Asynchronous operations complete on
 * the library's own threads; the caller's buffer belongs to the library until its handle is done.
 *
 * Keys: any text; integers are their decimal text. Values are dense arrays. The key table is
 * matched by name, so call order need not agree between workers.
 *
 * Several devices in one process: a key may be given several times in a row in one call, with the
 * array of each device. Pushed ones are added up and count as one contribution with the call's
 * samples; a pulled value goes to all of them. They have the same size and type. Those on GPUs are
 * added up and written by NCCL (libnccl.so.2), asynchronously as single arrays are; the types
 * `local` and `device`, and arrays that begin at no multiple of 16 bytes, are waited for. What NCCL
 * does not do within 30 s, or refuses, ends all such operations with DTKV_UNAVAILABLE. */
#ifndef DTKV_H
#define DTKV_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DTKV_API __attribute__((visibility("default")))
#else
#define DTKV_API
#endif

typedef struct dtkv_store dtkv_store;
typedef uint64_t dtkv_handle; /* 0 is no operation */

enum dtkv_error {
  DTKV_OK = 0,
  DTKV_INVALID = 1,     /* wrong argument or use */
  DTKV_UNAVAILABLE = 2, /* a server or the agent cannot be reached */
  DTKV_TIMEOUT = 3,     /* a deadline passed */
  DTKV_FENCED = 4,      /* this worker is no longer a member */
  DTKV_LEAVE = 5,       /* epoch_boundary: stop training and exit 0 */
  DTKV_MISMATCH = 6,    /* shape, dtype, optimizer, step or learning rate disagree */
  DTKV_INTERNAL = 7,
  DTKV_NONFINITE =
      8, /* a gradient was refused (--refuse-nonfinite); the round went on without it */
  /* A server was lost: the job goes back to its newest checkpoint, on new servers. Everything under
   * way ends with this, and so does every call about values until dtkv_epoch_boundary, which says
   * where to go on. Nothing of a buffer that was to be written may be relied on. */
  DTKV_ROLLBACK = 9
};

enum dtkv_dtype {
  DTKV_FLOAT32 = 0,
  DTKV_FLOAT64 = 1,
  DTKV_FLOAT16 = 2,
  DTKV_BFLOAT16 = 3,
  DTKV_INT64 = 4
};

enum dtkv_reduce {
  DTKV_AUTO = 0, /* mean for keys with an optimizer, sum for keys without */
  DTKV_SUM = 1,
  DTKV_MEAN = 2
};

enum dtkv_device {
  DTKV_CPU = 0,
  DTKV_CUDA = 1, /* memory of the device device_id */
  DTKV_CUDA_HOST =
      2 /* memory of the host that devices reach (pinned), also of device_id's stream */
};

enum dtkv_key_flags {
  DTKV_KEY_PARAMETER = 0,
  DTKV_KEY_AUXILIARY = 1 /* e.g. BatchNorm statistics: mean (integers: sum), no optimizer, never
                            compressed; in dist_async too a round of all workers */
};

/* An array of the caller. What was put on `stream` before a call goes before everything the call
 * does to the array: nobody needs to wait before a push of what kernels are still computing. The
 * other way: dtkv_wait, after which the values are there, or dtkv_wait_in_stream.
 *
 * Arrays on devices pass chunk by chunk through pinned memory of the store's own, from which they
 * are sent and in which values land. A build without CUDA, and a machine without a device, refuse
 * them: DTKV_INVALID, and a sentence that says what is missing. */
typedef struct dtkv_array {
  void* data;
  size_t count; /* elements */
  int dtype;    /* dtkv_dtype */
  int device;   /* dtkv_device */
  int device_id;
  void* stream; /* cudaStream_t of the caller. NULL: CUDA's default stream, for DTKV_CUDA; nothing
                   is under way, for DTKV_CUDA_HOST. Of no meaning for DTKV_CPU. */
} dtkv_array;

struct DLManagedTensorVersioned;

/* The array that a DLPack tensor is; dlpack.h of the caller's own defines the structs. `tensor` is
 * a DLTensor, or a DLManagedTensor, which begins with one. `stream`: for tensors that devices
 * reach. Nothing is copied, owned or kept: the tensor outlives the operations on the array.
 * DTKV_INVALID, with a sentence: it is not contiguous, or of a type or on a device that there is
 * not here. */
DTKV_API int dtkv_array_from_dlpack(const void* tensor, void* stream, dtkv_array* out);
/* `is_read_only` says whether nothing may be pulled into the array; NULL: such a tensor is refused.
 */
DTKV_API int dtkv_array_from_dlpack_versioned(const struct DLManagedTensorVersioned* tensor,
                                              void* stream, dtkv_array* out, int* is_read_only);

/* What a push says of its step. Contributors of one round must agree on step and learning rate. */
typedef struct dtkv_push_options {
  int reduce;          /* dtkv_reduce */
  uint64_t samples;    /* weight for mean; 0 adds nothing but still takes part in the round */
  uint64_t step;       /* the trainer's step number */
  float learning_rate; /* used by the server's optimizer; ignored for keys without one */
  int priority;        /* higher goes first */
} dtkv_push_options;

/* "local", "device", "dist_sync", "dist_device_sync" (= "dist_sync_device"), "dist_async".
 * dist_* needs to be started by dtlaunch (DT_* in the environment) and waits for the servers. */
DTKV_API int dtkv_create(const char* type, dtkv_store** out);
/* Finishes outstanding operations (bounded by a deadline), says goodbye, frees. NULL is fine. */
DTKV_API void dtkv_destroy(dtkv_store* store);
DTKV_API const char* dtkv_last_error(void);
DTKV_API const char* dtkv_type(const dtkv_store* store);

/* Rank and world size of the present view; for a newcomer predictions until its first release. */
DTKV_API uint32_t dtkv_rank(const dtkv_store* store);
DTKV_API uint32_t dtkv_num_workers(const dtkv_store* store);
DTKV_API uint64_t dtkv_generation(const dtkv_store* store);
DTKV_API uint32_t dtkv_worker_id(const dtkv_store* store);
/* 1 if this worker joined a job that was already running. */
DTKV_API int dtkv_is_newcomer(const dtkv_store* store);
/* 1 if this worker has rank 0's duties (checkpoints, reports). */
DTKV_API int dtkv_is_lead(const dtkv_store* store);

/* Creates keys. The member with rank 0 gives the initial values; for the others, and for
 * newcomers, shapes are checked. Returns when every key exists on its servers. */
DTKV_API int dtkv_init(dtkv_store* store, size_t n, const char* const* keys,
                       const dtkv_array* values, int key_flags);

/* Asynchronous. Push contributes to the key's next round. Pull fetches the value after this
 * worker's last push of the key took effect. Pushpull is both: the value (or, without optimizer,
 * the reduced contribution) of exactly that round. `handle` may be NULL: then they block. */
DTKV_API int dtkv_push(dtkv_store* store, size_t n, const char* const* keys,
                       const dtkv_array* values, const dtkv_push_options* options,
                       dtkv_handle* handle);
DTKV_API int dtkv_pull(dtkv_store* store, size_t n, const char* const* keys, const dtkv_array* out,
                       int priority, dtkv_handle* handle);
DTKV_API int dtkv_pushpull(dtkv_store* store, size_t n, const char* const* keys,
                           const dtkv_array* values, const dtkv_array* out,
                           const dtkv_push_options* options, dtkv_handle* handle);
/* init by rank 0's values, then everyone pulls into `values`. */
DTKV_API int dtkv_broadcast(dtkv_store* store, size_t n, const char* const* keys,
                            const dtkv_array* values);
/* Memory for gradients and values, zeroed and page-aligned. Pushes from it and pulls into it need
 * no copy where worker and server are on one host; elsewhere it is memory like any other. Few large
 * ones: each costs a file descriptor. Valid until dtkv_free or dtkv_destroy. */
DTKV_API int dtkv_allocate(dtkv_store* store, size_t bytes, void** out);
/* What dtkv_allocate gave. DTKV_INVALID, and it stays, while an operation on it is under way. */
DTKV_API int dtkv_free(dtkv_store* store, void* memory);
/* Waits for an operation, at most timeout_s (<= 0: the store's own deadline). */
DTKV_API int dtkv_wait(dtkv_store* store, dtkv_handle handle, double timeout_s);
DTKV_API int dtkv_wait_all(dtkv_store* store, double timeout_s);
/* Waits less long than dtkv_wait: until the values are on their way to arrays on devices. What the
 * caller puts on those arrays' streams from then on comes after them; the host does not wait for
 * the device. dtkv_wait of the same handle, some time, says whether it all went well. */
DTKV_API int dtkv_wait_in_stream(dtkv_store* store, dtkv_handle handle, double timeout_s);

/* `spec`: "sgd momentum=0.9 weight_decay=1e-4 nesterov=1", "adam beta1=0.9 beta2=0.999 eps=1e-8
 * weight_decay=0", "adamw ...". Applies to parameter keys. Equal to the present one: nothing
 * happens (state stays); different while keys have state: DTKV_MISMATCH; while somebody's push to a
 * parameter key waits for the others': DTKV_INVALID. */
DTKV_API int dtkv_set_optimizer(dtkv_store* store, const char* spec);

/* `spec`: "none", "1bit threshold=0" (0 may be left out), "2bit threshold=0.5" (0.5 may be left
 * out), "fp16", "bf16": how this worker sends gradients from now on. What a payload could not say
 * is added to the key's next gradient (a residual per key, at the worker). 2bit sends the
 * threshold, its negative or nothing, and where the residual outgrows the gradient a line on stderr
 * says once per key that the threshold is too small; fp16 and bf16 send what is finite and too
 * large for them as their largest number, the rest later; 1bit sends 1 where the sum is above the
 * threshold and -1 elsewhere. Parameter keys of float32 alone; values come back whole. Every
 * contributor of a round needs the same codec, else: DTKV_MISMATCH. Between a worker and a server
 * that share memory large keys travel as they are: compressing them would only cost. 1bit and 2bit
 * carry no infinity and no NaN: they are counted, and nothing is kept of them. */
DTKV_API int dtkv_set_gradient_compression(dtkv_store* store, const char* spec);

/* All members of the contributor set meet. Returns at once for a newcomer not yet released. */
DTKV_API int dtkv_barrier(dtkv_store* store);

/* What a boundary brought. */
typedef struct dtkv_view {
  uint64_t generation;
  uint32_t rank;
  uint32_t num_workers;
  uint32_t epoch;  /* the epoch that begins; for a newcomer not what it asked for */
  int changed;     /* rank or num_workers differ from before: rebuild data iterators */
  int rolled_back; /* the servers have the values of that epoch's begin, which is run again */
} dtkv_view;

/* This worker's last push of a parameter key in the epoch was made: the others' steps no longer
 * wait for it. Auxiliary keys may still be pushed, and their rounds wait for every worker that has
 * not finished the epoch, so that each worker sees what all have: statistics after everybody's last
 * step, then counts of an evaluation with them. */
DTKV_API int dtkv_finish_steps(dtkv_store* store);
/* This worker's last push of the epoch was made; implied by epoch_boundary. */
DTKV_API int dtkv_finish_epoch(dtkv_store* store);
/* To be called at the start of every epoch, epoch 0 included. Blocks until every member arrived.
 * DTKV_LEAVE: this worker was removed; stop training and exit 0. After it returns 0, values a
 * worker pulls are the servers' present ones; call dtkv_pull to refresh local copies.
 *
 * After DTKV_ROLLBACK, whatever `epoch` is, and also if servers were lost while it waited, it
 * returns 0 with view->rolled_back 1 and in view->epoch, lower than or the same as before, the
 * epoch to go on with: pull every key, begin that epoch's data anew. The servers have the
 * optimizer's state and the keys of that checkpoint; keys made later are to be made again
 * (dtkv_init of those that are there does nothing). What compression had kept back is gone. */
DTKV_API int dtkv_epoch_boundary(dtkv_store* store, uint32_t epoch, dtkv_view* view);

/* Tells the supervisor where training is; cheap, rate-limited inside. */
DTKV_API int dtkv_progress(dtkv_store* store, uint32_t epoch, uint64_t step);

DTKV_API const char* dtkv_version(void);

#ifdef __cplusplus
}
#endif
#endif
