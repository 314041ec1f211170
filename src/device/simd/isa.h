// Which instruction set the CPU kernels use. A kernel file named isa_*.cpp is compiled once per instruction
// set, with INGOT_ISA naming the namespace its code lives in; it includes only plain headers and keeps
// everything else in that namespace or in an anonymous one, so no inline function compiled for a newer
// machine is ever linked into old paths (docs/numerics.md rule 6; scripts/check_isa_symbols proves it).
//
//   kernel.h:      INGOT_ISA_KERNEL(void, my_kernel, (const MyArgs& args));
//   isa_cpu.cpp:   namespace ingot::INGOT_ISA { void my_kernel(const MyArgs& args) { ... } }
//   elsewhere:     INGOT_ISA_CALL(my_kernel)(args);
#pragma once

#if __has_include("ingot_isas.h")  // which kernels that are compiled alone do not need
#include "ingot_isas.h"
#endif

namespace ingot {

/// avx512bf16 runs the kernels of avx512, with the processor's dot product where both operands are bf16.
enum class Isa { generic, avx2, avx512, avx512bf16 };
inline constexpr Isa kEveryIsa[] = {Isa::generic, Isa::avx2, Isa::avx512, Isa::avx512bf16};

/// The best available set, or the one that $INGOT_ISA (a name of isa_name) asks for; fixed at first use.
/// Throws Error where that is not available, or none is.
Isa active_isa();
const char* isa_name(Isa isa);
/// For tests: makes `isa`, which must be available, the active set from now on.
void force_isa(Isa isa);
/// Whether this CPU has the set, and this program kernels for it (INGOT_NATIVE in CMake: for one set alone).
bool isa_available(Isa isa);

}  // namespace ingot

#define INGOT_ISA_KERNEL(result, name, parameters) \
  namespace generic {                              \
  result name parameters;                          \
  }                                                \
  namespace avx2 {                                 \
  result name parameters;                          \
  }                                                \
  namespace avx512 {                               \
  result name parameters;                          \
  }
#ifdef INGOT_ONLY_ISA
#define INGOT_ISA_CALL(name) (::ingot::INGOT_ONLY_ISA::name)
#else
#define INGOT_ISA_CALL(name)                                             \
  (::ingot::active_isa() >= ::ingot::Isa::avx512 ? ::ingot::avx512::name \
   : ::ingot::active_isa() == ::ingot::Isa::avx2 ? ::ingot::avx2::name   \
                                                 : ::ingot::generic::name)
#endif
