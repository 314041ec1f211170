// See product_choices.h.
#include "device/gemm/product_choices.h"

#include <array>
#include <string_view>

#include "base/hash.h"
#include "base/parallel.h"
#include "base/round.h"
#include "device/gemm/gemm_kernels.h"

namespace ingot {
namespace {

std::atomic<const ProductChoices*> installed = nullptr;

ElementType element(DType type) {
  return type == DType::bf16 ? ElementType::bf16 : ElementType::f32;
}

bool makes_pairs(const ProductKey& p) {
  return p.a == ElementType::bf16 && p.b != ElementType::f32;
}

}  // namespace

std::vector<ProductChoice> ways_to_make(const ProductKey& p) {
  std::vector<ProductChoice> ways;
  for (const bool transposed : {false, true}) {
    if (transposed && p.b == ElementType::rounded) continue;
    const ElementType left = transposed ? p.b : p.a;
    const bool along_k = transposed ? p.form == GemmForm::nt : p.form != GemmForm::tn;
    if (makes_pairs(p) ? along_k && p.k % 2 == 0 : left == ElementType::f32)
      ways.push_back({.transposed = transposed, .in_place = true});
    for (const bool own : {false, true})
      if (!own || p.threads > 1)
        ways.push_back({.transposed = transposed, .in_place = false, .own_blocks = own});
  }
  return ways;
}

std::vector<ProductChoice> with_each_kc(const ProductKey& p, const ProductChoice& way) {
  constexpr int64_t kLeast = 128, kMostBlocks = 8;  // k-steps; blocks of k
  const int64_t steps = makes_pairs(p) ? ceil_div(p.k, 2) : p.k;
  std::vector<ProductChoice> all;
  for (int64_t blocks = 1; blocks <= kMostBlocks; ++blocks) {
    const int64_t kc = round_up(ceil_div(steps, blocks), 16);
    if (kc > INGOT_ISA_CALL(gemm_tile_shape)().max_kc || (blocks > 1 && kc < kLeast)) continue;
    all.push_back(way);
    all.back().kc = kc;
  }
  return all;
}

size_t ProductChoices::Hash::operator()(const ProductKey& key) const {
  const auto types = static_cast<int64_t>(key.form) * 64 + static_cast<int64_t>(key.a) * 16 +
                     static_cast<int64_t>(key.b) * 4 + static_cast<int64_t>(key.c);
  const std::array<int64_t, 5> numbers{key.m, key.n, key.k, 2 * types + key.accumulate, key.threads};
  return hash64({reinterpret_cast<const char*>(numbers.data()), sizeof(numbers)});
}

ProductChoice ProductChoices::of(const GemmArgs& p) const {
  const bool dense = p.lda == (p.a_transposed ? p.m : p.k) && p.ldb == (p.b_transposed ? p.k : p.n);
  if (p.packed != nullptr || !dense || p.ldc != p.n || (p.a_transposed && p.b_transposed)) return {};
  const GemmForm form = p.a_transposed ? GemmForm::tn : p.b_transposed ? GemmForm::nt : GemmForm::nn;
  const ElementType b = p.round_b ? ElementType::rounded : element(p.b_type);
  const auto choice = choices_.find(
      {p.m, p.n, p.k, form, element(p.a_type), b, element(p.c_type), p.accumulate, num_threads()});
  if (choice == choices_.end()) return {};
  found_.fetch_add(1, std::memory_order_relaxed);
  return choice->second;
}

const ProductChoices* install_product_choices(const ProductChoices* choices) {
  return installed.exchange(choices, std::memory_order_acq_rel);
}

ProductChoice installed_choice(const GemmArgs& args) {
  const ProductChoices* const choices = installed.load(std::memory_order_acquire);
  return choices == nullptr ? ProductChoice{} : choices->of(args);
}

}  // namespace ingot
