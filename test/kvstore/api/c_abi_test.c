/* dtkv.h as a C program has it, beside a dlpack.h of its own. Exit code 0: all is well. */

#include <stdio.h>
#include <string.h>

#include "kvstore/dtkv.h"

/* As dlpack.h version 1 defines them. */
typedef enum { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLROCM = 10 } DLDeviceType;
typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;
typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;
typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self);
} DLManagedTensor;
typedef struct {
  uint32_t major;
  uint32_t minor;
} DLPackVersion;
typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

static int failures = 0;

#define CHECK(what)                                                                        \
  do {                                                                                     \
    if (!(what)) {                                                                         \
      ++failures;                                                                          \
      fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, dtkv_last_error());   \
    }                                                                                      \
  } while (0)
#define CHECK_REFUSED(what, word)                            \
  do {                                                       \
    CHECK((what) == DTKV_INVALID);                           \
    CHECK(strstr(dtkv_last_error(), (word)) != NULL);        \
  } while (0)

static float values[6] = {0, 1, 2, 3, 4, 5};
static int64_t shape[2] = {2, 3};
static int64_t strides[2] = {3, 1};

static DLTensor tensor(void) {
  DLTensor t;
  memset(&t, 0, sizeof t);
  t.data = values;
  t.device.device_type = kDLCPU;
  t.ndim = 2;
  t.dtype.code = 2;
  t.dtype.bits = 32;
  t.dtype.lanes = 1;
  t.shape = shape;
  return t;
}

static void tensors_become_arrays(void) {
  dtkv_array array;
  DLTensor t = tensor();
  CHECK(dtkv_array_from_dlpack(&t, NULL, &array) == DTKV_OK);
  CHECK(array.data == values && array.count == 6 && array.dtype == DTKV_FLOAT32);
  CHECK(array.device == DTKV_CPU && array.device_id == 0 && array.stream == NULL);

  t.strides = strides;
  t.byte_offset = 4;
  shape[0] = 1;  /* its stride means nothing */
  strides[0] = 77;
  CHECK(dtkv_array_from_dlpack(&t, values, &array) == DTKV_OK);
  CHECK(array.data == values + 1 && array.count == 3 && array.stream == NULL);
  shape[0] = 2;
  strides[0] = 3;

  t = tensor();
  t.ndim = 0; /* one number */
  t.shape = NULL;
  CHECK(dtkv_array_from_dlpack(&t, NULL, &array) == DTKV_OK && array.count == 1);

  t = tensor();
  t.device.device_type = kDLCUDA;
  t.device.device_id = 3;
  t.dtype.code = 4;
  t.dtype.bits = 16;
  CHECK(dtkv_array_from_dlpack(&t, values, &array) == DTKV_OK);
  CHECK(array.device == DTKV_CUDA && array.device_id == 3 && array.stream == values);
  CHECK(array.dtype == DTKV_BFLOAT16);

  t = tensor();
  t.device.device_type = kDLCUDAHost;
  CHECK(dtkv_array_from_dlpack(&t, NULL, &array) == DTKV_OK && array.device == DTKV_CUDA_HOST);
}

static void others_are_refused(void) {
  dtkv_array array;
  DLTensor t = tensor();
  int64_t columns[2] = {1, 2};
  int64_t rows[2] = {4, 1};
  int64_t huge[2] = {INT64_MAX, INT64_MAX};
  int64_t negative[2] = {2, -3};
  int64_t none[2] = {0, 3};
  CHECK_REFUSED(dtkv_array_from_dlpack(NULL, NULL, &array), "tensor");
  CHECK_REFUSED(dtkv_array_from_dlpack(&t, NULL, NULL), "place");

  t.strides = columns;
  CHECK_REFUSED(dtkv_array_from_dlpack(&t, NULL, &array), "contiguous");
  t.strides = rows;
  CHECK_REFUSED(dtkv_array_from_dlpack(&t, NULL, &array), "contiguous");
  t.shape = none; /* nothing is contiguous */
  CHECK(dtkv_array_from_dlpack(&t, NULL, &array) == DTKV_OK && array.count == 0);

  t = tensor();
  t.shape = huge;
  CHECK_REFUSED(dtkv_array_from_dlpack(&t, NULL, &array), "shape");
  t.shape = negative;
  CHECK_REFUSED(dtkv_array_from_dlpack(&t, NULL, &array), "shape");
  t.shape = NULL;
  CHECK_REFUSED(dtkv_array_from_dlpack(&t, NULL, &array), "shape");

  t = tensor();
  t.byte_offset = 2;
  CHECK_REFUSED(dtkv_array_from_dlpack(&t, NULL, &array), "aligned");
  t = tensor();
  t.data = NULL;
  CHECK_REFUSED(dtkv_array_from_dlpack(&t, NULL, &array), "no data");
  t = tensor();
  t.dtype.lanes = 4;
  CHECK_REFUSED(dtkv_array_from_dlpack(&t, NULL, &array), "4 lanes");
  t = tensor();
  t.dtype.code = 1;
  CHECK_REFUSED(dtkv_array_from_dlpack(&t, NULL, &array), "type code 1");
  t = tensor();
  t.device.device_type = kDLROCM;
  CHECK_REFUSED(dtkv_array_from_dlpack(&t, NULL, &array), "type 10");
}

static void versioned_tensors_say_more(void) {
  dtkv_array array;
  int is_read_only = 7;
  DLManagedTensorVersioned t;
  memset(&t, 0, sizeof t);
  t.version.major = 1;
  t.version.minor = 99;
  t.dl_tensor = tensor();
  CHECK(dtkv_array_from_dlpack_versioned(&t, NULL, &array, NULL) == DTKV_OK);
  CHECK(array.data == values && array.count == 6);
  t.flags = 1;
  CHECK_REFUSED(dtkv_array_from_dlpack_versioned(&t, NULL, &array, NULL), "read-only");
  CHECK(dtkv_array_from_dlpack_versioned(&t, NULL, &array, &is_read_only) == DTKV_OK);
  CHECK(is_read_only == 1);
  t.version.major = 2;
  CHECK_REFUSED(dtkv_array_from_dlpack_versioned(&t, NULL, &array, NULL), "version 2");
}

static void a_store_takes_them(void) {
  dtkv_store* store = NULL;
  const char* keys[1] = {"w"};
  dtkv_array array;
  dtkv_array on_device;
  float pulled[6] = {0};
  dtkv_array out;
  DLManagedTensor t;
  memset(&t, 0, sizeof t);
  t.dl_tensor = tensor();
  CHECK(dtkv_create("device", &store) == DTKV_OK);
  CHECK(dtkv_array_from_dlpack(&t, NULL, &array) == DTKV_OK);
  CHECK(dtkv_init(store, 1, keys, &array, DTKV_KEY_PARAMETER) == DTKV_OK);
  out = array;
  out.data = pulled;
  out.device = DTKV_CUDA_HOST;
  CHECK(dtkv_pull(store, 1, keys, &out, 0, NULL) == DTKV_OK);
  CHECK(memcmp(pulled, values, sizeof values) == 0);

  /* Never read as memory of the host: that would end us. */
  on_device = array;
  on_device.data = (void*)64;
  on_device.device = DTKV_CUDA;
  on_device.device_id = 4000;
  CHECK_REFUSED(dtkv_init(store, 1, keys, &on_device, DTKV_KEY_PARAMETER), "CUDA device");
  CHECK_REFUSED(dtkv_push(store, 1, keys, &on_device, NULL, NULL), "CUDA device");
  CHECK_REFUSED(dtkv_pull(store, 1, keys, &on_device, 0, NULL), "CUDA device");
  CHECK_REFUSED(dtkv_pushpull(store, 1, keys, &array, &on_device, NULL, NULL), "CUDA device");
  CHECK_REFUSED(dtkv_broadcast(store, 1, keys, &on_device), "CUDA device");
  on_device.device = 3;
  CHECK_REFUSED(dtkv_push(store, 1, keys, &on_device, NULL, NULL), "unknown kind of device");
  dtkv_destroy(store);
}

static void the_library_says_which_interface_it_has(void) { CHECK(dtkv_abi() == DTKV_ABI); }

static void a_device_that_is_not_there_has_a_reason(void) {
  CHECK_REFUSED(dtkv_check_device(77), "no CUDA device");
}

static void kept_memory_outlives_its_store(void) {
  dtkv_store* store = NULL;
  void* kept = NULL;
  CHECK(dtkv_create("local", &store) == DTKV_OK);
  CHECK(dtkv_allocate(store, 4096, &kept) == DTKV_OK);
  CHECK_REFUSED(dtkv_keep(store, values), "not allocated");
  CHECK(dtkv_keep(store, kept) == DTKV_OK);
  dtkv_destroy(store);
  memset(kept, 7, 4096);
  CHECK(((char*)kept)[4095] == 7);
  CHECK(dtkv_unkeep(kept) == DTKV_OK);
  CHECK_REFUSED(dtkv_unkeep(kept), "not kept");
}

int main(void) {
  kept_memory_outlives_its_store();
  the_library_says_which_interface_it_has();
  a_device_that_is_not_there_has_a_reason();
  tensors_become_arrays();
  others_are_refused();
  versioned_tensors_say_more();
  a_store_takes_them();
  return failures == 0 ? 0 : 1;
}
