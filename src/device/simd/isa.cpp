// See isa.h.
#include "device/simd/isa.h"

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace ingot {
namespace {

#ifdef INGOT_ONLY_ISA
#define INGOT_TEXT_OF(name) #name
#define INGOT_NAME_OF(macro) INGOT_TEXT_OF(macro)
constexpr std::string_view kOnly = INGOT_NAME_OF(INGOT_ONLY_ISA);  // a namespace of kernels
#else
constexpr std::string_view kOnly;
#endif

bool is_built(Isa isa) {
  return kOnly.empty() || kOnly == isa_name(isa == Isa::avx512bf16 ? Isa::avx512 : isa);
}

bool cpu_has(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::generic:
      return true;
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case Isa::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && cpu_has(Isa::avx2);
    case Isa::avx512bf16:
      return __builtin_cpu_supports("avx512bf16") && cpu_has(Isa::avx512);
  }
  return false;
#else
  return isa == Isa::generic;
#endif
}

[[noreturn]] void refuse_unbuilt(const std::string& what) {
  throw Error(fmt::format("{}, and this program has kernels for {} alone", what, kOnly),
              "build it on this machine, or for all of its kind: cmake --preset release -DINGOT_NATIVE=OFF");
}

Isa detect() {
  const char* text = std::getenv("INGOT_ISA");
  const std::string_view wanted = text ? text : "";
  const Isa* best = nullptr;
  for (const Isa& isa : kEveryIsa)
    if (isa_available(isa)) best = &isa;
  if (best == nullptr) refuse_unbuilt(fmt::format("this CPU does not have {}", kOnly));
  if (wanted.empty()) return *best;
  for (const Isa isa : kEveryIsa)
    if (wanted == isa_name(isa)) {
      if (!cpu_has(isa)) fail("INGOT_ISA={} asks for instructions that this CPU does not have", wanted);
      if (!is_built(isa)) refuse_unbuilt(fmt::format("INGOT_ISA is {}", wanted));
      return isa;
    }
  throw Error(fmt::format("INGOT_ISA={} is not an instruction set", wanted),
              "use generic, avx2, avx512 or avx512bf16");
}

std::atomic<Isa>& active() {
  static std::atomic<Isa> isa{detect()};
  return isa;
}

}  // namespace

bool isa_available(Isa isa) {
  return cpu_has(isa) && is_built(isa);
}

Isa active_isa() {
  return active().load(std::memory_order_relaxed);
}

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::generic:
      return "generic";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512bf16:
      return "avx512bf16";
  }
  return "?";
}

void force_isa(Isa isa) {
  INGOT_CHECK(isa_available(isa), "isa = {}", isa_name(isa));
  active() = isa;
}

}  // namespace ingot
