// hopper.h for nvcc.
#pragma once

#define INGOT_GRID_CONSTANT __grid_constant__
#define INGOT_DYNAMIC_SHARED(type, name)                            \
  extern __shared__ __align__(1024) unsigned char dynamic_memory[]; \
  auto& name = *reinterpret_cast<type*>(dynamic_memory)

namespace ingot::INGOT_ISA {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr bool kIsHopper = true;
#else
constexpr bool kIsHopper = false;
#endif

inline TensorMap tensor_map(const TiledMatrices& matrices) {
  return gpu_launcher()->tensor_map(matrices);
}

INGOT_INLINE uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

INGOT_INLINE void end_with_error() {
  asm volatile("trap;");
}

/// A number that the compiler knows to be the same for all threads of a warp.
INGOT_INLINE int uniform_over_warp(int x) {
  return __shfl_sync(~0U, x, 0);
}

INGOT_INLINE void begin_barrier(Barrier& b, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&b)), "r"(arrivals) : "memory");
}
INGOT_INLINE void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
INGOT_INLINE void expect_bytes(Barrier& b, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&b)), "r"(bytes)
               : "memory");
}
INGOT_INLINE void arrive(Barrier& b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&b)) : "memory");
}
INGOT_INLINE void await_phase(Barrier& b, unsigned parity) {
  asm volatile(
      "{\n.reg .pred ended;\nAGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n@!ended bra AGAIN;\n}" ::"r"(
          shared_address(&b)),
      "r"(parity)
      : "memory");
}

INGOT_INLINE void load_tile(void* to, const TensorMap& map, Barrier& b, int64_t column, int64_t row,
                            int64_t matrix) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(&b)), "r"(static_cast<int>(column)), "r"(static_cast<int>(row)),
      "r"(static_cast<int>(matrix))
      : "memory");
}

template <int kRegisters>
INGOT_INLINE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
INGOT_INLINE void leave_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// Keeps the compiler from moving what touches sums to the other side.
template <int kCount>
INGOT_INLINE void pin(float (&sums)[kCount]) {
  INGOT_UNROLL
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}
template <int kCount>
INGOT_INLINE void begin_products(float (&sums)[kCount]) {
  pin(sums);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
INGOT_INLINE void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kGroups, int kCount>
INGOT_INLINE void await_products(float (&sums)[kCount]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
  pin(sums);
}

// clang-format off
#define INGOT_SUMS_4(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define INGOT_SUMS_16(i) INGOT_SUMS_4(i), INGOT_SUMS_4(i + 4), INGOT_SUMS_4(i + 8), INGOT_SUMS_4(i + 12)
#define INGOT_SUMS_64(i) INGOT_SUMS_16(i), INGOT_SUMS_16(i + 16), INGOT_SUMS_16(i + 32), INGOT_SUMS_16(i + 48)
#define INGOT_OPERANDS_64 \
  "%0, %1, %2, %3, %4, %5, %6, %7, " \
  "%8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, " \
  "%40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, " \
  "%56, %57, %58, %59, %60, %61, %62, %63"
#define INGOT_OPERANDS_FROM_64 \
  "%64, %65, %66, %67, %68, %69, %70, %71, " \
  "%72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, " \
  "%88, %89, %90, %91, %92, %93, %94, %95, " \
  "%96, %97, %98, %99, %100, %101, %102, %103, " \
  "%104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, " \
  "%120, %121, %122, %123, %124, %125, %126, %127"
// clang-format on

template <int kAlongRowsA, int kAlongRowsB>
INGOT_INLINE void add_product(float (&sums)[8], WarpgroupOperand a, WarpgroupOperand b) {
  asm volatile(
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, "
      "%8, %9, adds, 1, 1, %11, %12;\n}"
      : INGOT_SUMS_4(0), INGOT_SUMS_4(4)
      : "l"(a.bits), "l"(b.bits), "r"(1), "n"(kAlongRowsA), "n"(kAlongRowsB));
}
template <int kAlongRowsA, int kAlongRowsB>
INGOT_INLINE void add_product(float (&sums)[64], WarpgroupOperand a, WarpgroupOperand b) {
  asm volatile(
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" INGOT_OPERANDS_64
      "}, %64, %65, adds, 1, 1, %67, %68;\n}"
      : INGOT_SUMS_64(0)
      : "l"(a.bits), "l"(b.bits), "r"(1), "n"(kAlongRowsA), "n"(kAlongRowsB));
}
template <int kAlongRowsA, int kAlongRowsB>
INGOT_INLINE void add_product(float (&sums)[128], WarpgroupOperand a, WarpgroupOperand b) {
  asm volatile(
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" INGOT_OPERANDS_64 ", " INGOT_OPERANDS_FROM_64
      "}, %128, %129, adds, 1, 1, %131, %132;\n}"
      : INGOT_SUMS_64(0), INGOT_SUMS_64(64)
      : "l"(a.bits), "l"(b.bits), "r"(1), "n"(kAlongRowsA), "n"(kAlongRowsB));
}

#undef INGOT_SUMS_4
#undef INGOT_SUMS_16
#undef INGOT_SUMS_64
#undef INGOT_OPERANDS_64
#undef INGOT_OPERANDS_FROM_64

INGOT_INLINE void clear_16_bytes(void* to) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(shared_address(to)), "r"(0) : "memory");
}
INGOT_INLINE void publish_stores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
template <int kThreads>
INGOT_INLINE void meet_first() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

}  // namespace ingot::INGOT_ISA
