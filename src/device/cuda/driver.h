// The driver of NVIDIA GPUs, opened when it is asked for: nothing of CUDA is linked, and the few functions
// and types that are used are declared here. A machine without a driver or a GPU gets an Error that says what
// is missing and what to do.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "device/gpu/launcher.h"

namespace ingot::cuda_driver {

using Result = int;  ///< CUresult
constexpr Result kSuccess = 0, kOutOfMemory = 2, kNoDevice = 100, kNoBinary = 209;

using Address = uint64_t;  ///< CUdeviceptr
using Context = struct ContextOfDriver*;
using Stream = struct StreamOfDriver*;
using Event = struct EventOfDriver*;
using Module = struct ModuleOfDriver*;
using Function = struct FunctionOfDriver*;
using Graph = struct GraphOfDriver*;
using GraphRun = struct GraphRunOfDriver*;  ///< CUgraphExec
using Pool = struct PoolOfDriver*;          ///< CUmemoryPool

/// f(name here, name in the library, parameters)
// clang-format off
#define INGOT_CUDA_FUNCTIONS(f)                                                                              \
  f(init, "cuInit", (unsigned flags))                                                                        \
  f(version, "cuDriverGetVersion", (int* version))                                                           \
  f(device_count, "cuDeviceGetCount", (int* count))                                                          \
  f(device_get, "cuDeviceGet", (int* device, int ordinal))                                                   \
  f(device_name, "cuDeviceGetName", (char* name, int bytes, int device))                                     \
  f(device_attribute, "cuDeviceGetAttribute", (int* value, int attribute, int device))                       \
  f(retain_context, "cuDevicePrimaryCtxRetain", (Context* context, int device))                              \
  f(set_context, "cuCtxSetCurrent", (Context context))                                                       \
  f(memory_info, "cuMemGetInfo_v2", (size_t* free, size_t* total))                                           \
  f(allocate, "cuMemAlloc_v2", (Address* memory, size_t bytes))                                              \
  f(release, "cuMemFree_v2", (Address memory))                                                               \
  f(pin, "cuMemHostRegister_v2", (void* host, size_t bytes, unsigned flags))                                 \
  f(unpin, "cuMemHostUnregister", (void* host))                                                              \
  f(allocate_in_stream, "cuMemAllocAsync", (Address* memory, size_t bytes, Stream stream))                   \
  f(release_in_stream, "cuMemFreeAsync", (Address memory, Stream stream))                                    \
  f(default_pool, "cuDeviceGetDefaultMemPool", (Pool* pool, int device))                                     \
  f(set_pool, "cuMemPoolSetAttribute", (Pool pool, int attribute, void* value))                              \
  f(upload, "cuMemcpyHtoDAsync_v2", (Address to, const void* from, size_t bytes, Stream stream))             \
  f(download, "cuMemcpyDtoHAsync_v2", (void* to, Address from, size_t bytes, Stream stream))                 \
  f(copy, "cuMemcpyDtoDAsync_v2", (Address to, Address from, size_t bytes, Stream stream))                   \
  f(set_bytes, "cuMemsetD8Async", (Address to, unsigned char value, size_t bytes, Stream stream))            \
  f(stream_create, "cuStreamCreate", (Stream* stream, unsigned flags))                                       \
  f(stream_wait, "cuStreamWaitEvent", (Stream stream, Event event, unsigned flags))                          \
  f(stream_synchronize, "cuStreamSynchronize", (Stream stream))                                              \
  f(event_create, "cuEventCreate", (Event* event, unsigned flags))                                           \
  f(event_record, "cuEventRecord", (Event event, Stream stream))                                             \
  f(event_synchronize, "cuEventSynchronize", (Event event))                                                  \
  f(event_destroy, "cuEventDestroy_v2", (Event event))                                                       \
  f(module_load, "cuModuleLoadData", (Module* module, const void* image))                                    \
  f(module_function, "cuModuleGetFunction", (Function* function, Module module, const char* name))           \
  f(set_function, "cuFuncSetAttribute", (Function function, int attribute, int value))                      \
  f(encode_tiles, "cuTensorMapEncodeTiled",                                                                  \
    (TensorMap* map, int type, unsigned rank, void* memory, const uint64_t* extents,                         \
     const uint64_t* strides, const unsigned* tile, const unsigned* steps, int interleave, int swizzle,      \
     int promotion, int fill))                                                                               \
  f(launch, "cuLaunchKernel", (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,         \
                               unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,  \
                               Stream stream, void** parameters, void** extra))                              \
  f(capture_begin, "cuStreamBeginCapture_v2", (Stream stream, int mode))                                     \
  f(capture_end, "cuStreamEndCapture", (Stream stream, Graph* graph))                                        \
  f(graph_instantiate, "cuGraphInstantiateWithFlags",                                                        \
    (GraphRun* run, Graph graph, unsigned long long flags))                                                  \
  f(graph_launch, "cuGraphLaunch", (GraphRun run, Stream stream))                                            \
  f(graph_destroy, "cuGraphDestroy", (Graph graph))                                                          \
  f(graph_run_destroy, "cuGraphExecDestroy", (GraphRun run))                                                 \
  f(error_name, "cuGetErrorName", (Result error, const char** name))                                         \
  f(error_text, "cuGetErrorString", (Result error, const char** text))
// clang-format on

struct Functions {
#define INGOT_CUDA_MEMBER(member, name, parameters) Result(*member) parameters = nullptr;
  INGOT_CUDA_FUNCTIONS(INGOT_CUDA_MEMBER)
#undef INGOT_CUDA_MEMBER
  /// Of a driver that has no GPU, for tests: asks for a kernel that is host code, to be run by `run`.
  Result (*launch_host_code)(Stream stream, const GpuLaunch& launch,
                             void (*run)(const char* name, int64_t blocks, int threads,
                                         void (*body)(const void*), const void* arguments)) = nullptr;
};

/// A driver with a GPU that it can use.
struct Driver {
  Functions call;
  std::string library;  ///< as it was asked for
  int version = 0;      ///< of CUDA: 1000 * major + 10 * minor
  int device = 0;       ///< the first one (CUDA_VISIBLE_DEVICES chooses)
  std::string name;     ///< "NVIDIA H100 80GB HBM3"
  int compute = 0;      ///< compute capability: 10 * major + minor
  int multiprocessors = 0;

  std::string version_text() const;  ///< "13.0"
  std::string architecture() const;  ///< "sm_90"
  bool is_faked() const { return call.launch_host_code != nullptr; }
};

/// Oldest version of CUDA whose driver may be used.
constexpr int kOldestVersion = 12000;

/// Error where the library is absent, too old or lacks a function, or finds no GPU that it can use.
Driver open_driver(const std::string& library = "libcuda.so.1");

/// "CUDA_ERROR_LAUNCH_FAILED (719): unspecified launch failure"
std::string text_of(const Functions& call, Result error);

}  // namespace ingot::cuda_driver
