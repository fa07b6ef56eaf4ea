/* libdtkv: the C interface of the kvstore. Opaque handles, pointers and counts; no C++ types, no
 * exceptions across the interface. kvstore/kvstore.h is the C++ interface.
 *
 * Every function that can fail returns 0 or a DTKV_* error; dtkv_last_error() then returns a
 * message for the user (thread-local, valid until the thread's next call).
 *
 * Threads: one store may be used from one thread at a time. Asynchronous operations complete on
 * the library's own threads; the caller's buffer belongs to the library until its handle is done.
 *
 * Fork: a child that fork() made has none of the store's connections and threads. Every call that
 * returns an error code fails there with DTKV_INVALID, dtkv_destroy does nothing. Memory from
 * dtkv_allocate is shared: what a child writes into it, the parent has.
 *
 * Keys: any text; integers are their decimal text. Values are dense arrays. The key table is
 * matched by name, so call order need not agree between workers. All workers create the same
 * parameter keys before their first dtkv_epoch_boundary; else one of them gets DTKV_MISMATCH.
 *
 * Types: float32, float64 and int64 keys. Arrays of float16 and bfloat16 belong to float32 keys:
 * what a worker gives is widened by the call, what it gets is rounded to the nearest, ties to even,
 * when it waits for the operation, and too large numbers become infinite. Values, sums and
 * optimizers have the precision of float32, and workers with arrays of all three types may share a
 * key. Such arrays are copied; the calls wait for the streams of those on devices.
 *
 * Several devices in one process: a key may be given several times in a row in one call, with the
 * array of each device. Pushed arrays are summed and count as one contribution with the call's
 * samples; a pulled value is written to all of them. They have the same size and type. NCCL
 * (libnccl.so.2) sums and writes arrays on GPUs, asynchronously like single arrays; with the types
 * `local` and `device`, and for arrays that do not begin at a multiple of 16 bytes, the call waits.
 * If NCCL fails, or does not finish within 30 s, all such operations end with DTKV_UNAVAILABLE. */
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

/* Number of this interface. A change that older programs cannot be run with raises it. */
#define DTKV_ABI 1

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
  /* A server was lost: the job goes back to its newest checkpoint, on new servers. All operations
   * under way end with this error, and so does every call about values until dtkv_epoch_boundary,
   * which returns the epoch to go on with. The content of buffers to be written is undefined. */
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
      2 /* pinned host memory, which devices can access; `stream` is on the device device_id */
};

enum dtkv_key_flags {
  DTKV_KEY_PARAMETER = 0,
  DTKV_KEY_AUXILIARY = 1, /* e.g. BatchNorm statistics: mean (integers: sum), no optimizer, never
                             compressed; in rounds of all workers, in dist_async as well */
  DTKV_KEY_TRANSIENT = 2  /* may be added: not in checkpoints, so that after DTKV_ROLLBACK and in a
                             resumed job the key does not exist until it is created again */
};

/* An array of the caller. The call's work on the array comes after the work that is on `stream` at
 * the call: the caller need not wait before it pushes an array that kernels are still computing. In
 * the other direction, call dtkv_wait, after which the values are there, or dtkv_wait_in_stream.
 *
 * Arrays on devices are copied chunk by chunk through pinned memory of the store, from which they
 * are sent and into which values are received. In a `local` store whose first array is on a device,
 * that device has the values and computes, and its arrays are used where they are. A build without
 * CUDA, and a machine without a device, refuse them: DTKV_INVALID, and a message that names what is
 * missing. */
typedef struct dtkv_array {
  void* data;
  size_t count; /* elements */
  int dtype;    /* dtkv_dtype */
  int device;   /* dtkv_device */
  int device_id;
  void* stream; /* cudaStream_t of the caller. NULL: CUDA's default stream, for DTKV_CUDA; no work
                   is under way, for DTKV_CUDA_HOST. Ignored for DTKV_CPU. */
} dtkv_array;

struct DLManagedTensorVersioned;

/* Describes a DLPack tensor as an array; the caller's own dlpack.h defines the structs. `tensor` is
 * a DLTensor, or a DLManagedTensor, which begins with one. `stream`: for tensors that devices can
 * access. Nothing is copied, owned or kept: the tensor must outlive the operations on the array.
 * DTKV_INVALID, with a message: it is not contiguous, or its type or device is not supported. */
DTKV_API int dtkv_array_from_dlpack(const void* tensor, void* stream, dtkv_array* out);
/* `is_read_only` becomes 1 if no value may be pulled into the array; NULL: such a tensor is
 * refused.
 */
DTKV_API int dtkv_array_from_dlpack_versioned(const struct DLManagedTensorVersioned* tensor,
                                              void* stream, dtkv_array* out, int* is_read_only);

/* Options of a push. Contributors of one round must agree on step and learning rate. A round in
 * which all have 0 samples, or are refused, makes no step; without optimizer its value is zeros. */
typedef struct dtkv_push_options {
  int reduce;          /* dtkv_reduce */
  uint64_t samples;    /* weight for mean; 0 adds nothing but still takes part in the round */
  uint64_t step;       /* the trainer's step number */
  float learning_rate; /* used by the server's optimizer, for float64 keys too; ignored for keys
                          without one */
  int priority;        /* higher goes first */
} dtkv_push_options;

/* "local", "device", "dist_sync", "dist_device_sync" (= "dist_sync_device"), "dist_async".
 * dist_* needs to be started by dtlaunch (DT_* in the environment) and waits for the servers. */
DTKV_API int dtkv_create(const char* type, dtkv_store** out);
/* Waits for outstanding operations, with a deadline, disconnects and frees. NULL is allowed. */
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

/* Creates keys. The member with rank 0 provides the initial values; for the others, and for
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
/* init by rank 0's values, then every worker pulls into `values`. */
DTKV_API int dtkv_broadcast(dtkv_store* store, size_t n, const char* const* keys,
                            const dtkv_array* values);
/* Memory for gradients and values, zeroed and page-aligned. Pushes from it and pulls into it need
 * no copy if worker and server are on one host; otherwise it is ordinary memory. Allocate few large
 * blocks: with servers each needs a file descriptor. Valid until dtkv_free or dtkv_destroy. */
DTKV_API int dtkv_allocate(dtkv_store* store, size_t bytes, void** out);
/* Frees memory from dtkv_allocate. DTKV_INVALID, and the memory stays, while an operation on it is
 * under way. */
DTKV_API int dtkv_free(dtkv_store* store, void* memory);
/* Memory from dtkv_allocate then stays valid after dtkv_destroy, until dtkv_unkeep. For languages
 * whose arrays may outlive the store. */
DTKV_API int dtkv_keep(dtkv_store* store, const void* memory);
/* Frees memory that dtkv_keep kept, also after dtkv_destroy, from any thread. */
DTKV_API int dtkv_unkeep(const void* memory);
/* Waits for an operation, at most timeout_s (<= 0: the store's own deadline). DTKV_TIMEOUT: it is
 * still under way, and may be waited for again. With any other result it is over. */
DTKV_API int dtkv_wait(dtkv_store* store, dtkv_handle handle, double timeout_s);
DTKV_API int dtkv_wait_all(dtkv_store* store, double timeout_s);
/* Waits only until the copies of the values to arrays on devices are on their streams. Work that
 * the caller then puts on those arrays' streams comes after the copies; the host does not wait for
 * the device. A later dtkv_wait of the same handle returns the operation's result. */
DTKV_API int dtkv_wait_in_stream(dtkv_store* store, dtkv_handle handle, double timeout_s);

/* `spec`: "sgd momentum=0.9 weight_decay=1e-4 nesterov=1", "adam beta1=0.9 beta2=0.999 eps=1e-8
 * weight_decay=0", "adamw ..." (weight_decay=0.01). DTKV_INVALID: a beta that is not in [0, 1),
 * eps=0, nesterov=1 without momentum. Applies to parameter keys. Equal to the present one: no
 * change (state stays); different while keys have state: DTKV_MISMATCH; while a push to a parameter
 * key waits for other workers' pushes: DTKV_INVALID. */
DTKV_API int dtkv_set_optimizer(dtkv_store* store, const char* spec);

/* Writes the servers' optimizer, as dtkv_set_optimizer takes it, to `text`, with its final 0;
 * empty: none was set. `states` becomes the number of arrays that it keeps for each parameter, 0 to
 * 2 (enum dtkv_state); NULL is allowed. DTKV_INVALID: `size` bytes are too few; 256 are enough. */
DTKV_API int dtkv_optimizer(dtkv_store* store, char* text, size_t size, int* states);

/* What the optimizer keeps for each parameter: "sgd" with momentum 1 array, "adam" and "adamw" 2.
 */
enum dtkv_state {
  DTKV_STATE_FIRST = 1, /* sgd: momentum buffer; adam: first moment */
  DTKV_STATE_SECOND = 2 /* adam: second moment */
};

/* Writes the keys' states to `out`, arrays of the keys' shapes and types, and the number of updates
 * of each key to `updates`: zeros before the first one. Waits. Between the steps of an epoch the
 * arrays of different keys may be of different steps: call it after the last one
 * (dtkv_finish_steps). */
DTKV_API int dtkv_pull_state(dtkv_store* store, size_t n, const char* const* keys, int which,
                             const dtkv_array* out, uint64_t* updates);
/* Sets the keys' states, and the numbers of updates that they come from, as the member with rank 0
 * provides them. To be called by all workers after dtkv_init and dtkv_set_optimizer, before the
 * first dtkv_epoch_boundary. Like dtkv_init it changes no key that has been updated, and none of
 * the others' calls has an effect but the check of shapes. */
DTKV_API int dtkv_init_state(dtkv_store* store, size_t n, const char* const* keys, int which,
                             const dtkv_array* values, const uint64_t* updates);

/* `spec`: "none", "2bit threshold=0.5" (0.5 may be left out), "fp16", "bf16": how this worker sends
 * gradients from now on. The rest that a payload cannot represent is added to the key's next
 * gradient (a residual per key, at the worker). 2bit sends the threshold, its negative or nothing;
 * if the residual outgrows the gradient, a line on stderr warns once per key that the threshold is
 * too small. fp16 and bf16 send finite numbers that are too large for them as their largest number,
 * and the rest later. Only float32 parameter keys are compressed, and only gradients, not values.
 * Every contributor of a round needs the same codec, else: DTKV_MISMATCH. Between a worker and a
 * server that share memory large keys are not compressed: it would only cost time. 2bit cannot
 * represent infinities and NaN: they are counted, and not kept in the residual. */
DTKV_API int dtkv_set_gradient_compression(dtkv_store* store, const char* spec);

/* All members of the contributor set meet. Returns at once for a newcomer not yet released. */
DTKV_API int dtkv_barrier(dtkv_store* store);

/* The view that begins at a boundary. */
typedef struct dtkv_view {
  uint64_t generation;
  uint32_t rank;
  uint32_t num_workers;
  uint32_t epoch;  /* the epoch that begins; for a newcomer it may differ from its argument */
  int changed;     /* rank or num_workers differ from before: rebuild data iterators */
  int rolled_back; /* the servers have the values of that epoch's begin, which is run again */
} dtkv_view;

/* This worker has made its last push of a parameter key in the epoch: the others' steps no longer
 * wait for it. Auxiliary keys may still be pushed, and their rounds wait for every worker that has
 * not finished the epoch, so that all workers take part in them: statistics after all workers' last
 * steps, then counts of an evaluation with them. */
DTKV_API int dtkv_finish_steps(dtkv_store* store);
/* This worker has made its last push of the epoch; implied by epoch_boundary. */
DTKV_API int dtkv_finish_epoch(dtkv_store* store);
/* To be called at the start of every epoch, epoch 0 included. Blocks until every member arrived.
 * `epoch`: the one after that of the last view; another one is DTKV_INVALID. At the first call it
 * is the one that the program begins with. DTKV_LEAVE: this worker was removed; stop training and
 * exit 0. After it returns 0, values a worker pulls are the servers' present ones; call dtkv_pull
 * to refresh local copies.
 *
 * After DTKV_ROLLBACK, whatever `epoch` is, and also if servers were lost while it waited, it
 * returns 0 with view->rolled_back 1 and in view->epoch the epoch to go on with, which is lower
 * than or the same as before: pull every key and begin that epoch's data again. The servers have
 * the optimizer's state and the keys of that checkpoint; create later keys again (dtkv_init of
 * existing keys does nothing). Compression residuals are dropped. */
DTKV_API int dtkv_epoch_boundary(dtkv_store* store, uint32_t epoch, dtkv_view* view);

/* Reports the training's progress to the supervisor; cheap, rate-limited inside. */
DTKV_API int dtkv_progress(dtkv_store* store, uint32_t epoch, uint64_t step);

/* A figure for people, in `dtctl status`: "train_loss", "learning_rate". `name` is a small letter
 * and at most 31 small letters, digits and underscores. The latest value of each name is sent once
 * a second; a worker has at most 32 names, and a value that is not finite is counted and dropped.
 * Never waits. The name "steps_in_epoch" is for the number of steps that an epoch has. Types
 * without servers: does nothing. */
DTKV_API int dtkv_report(dtkv_store* store, const char* name, double value);
/* The same of a text in place of a number, of which 200 bytes are sent: "overlap". */
DTKV_API int dtkv_report_text(dtkv_store* store, const char* name, const char* text);

/* Whether a store takes arrays on this CUDA device. DTKV_INVALID: no; the message says why. */
DTKV_API int dtkv_check_device(int device_id);
DTKV_API const char* dtkv_version(void);
/* DTKV_ABI of the library that is loaded. A program that finds it at run time (dlopen, ctypes)
 * compares it with the number that the program was written for. */
DTKV_API int dtkv_abi(void);

#ifdef __cplusplus
}
#endif
#endif
