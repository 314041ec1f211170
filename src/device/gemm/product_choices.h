// Ways to make a matrix product whose bits are equal, chosen product by product where measuring has shown
// that the rule of gemm_problem.h does not take the fastest. The choices of a machine are in a file
// (product_table.h).
#pragma once
#include <atomic>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/enum.h"
#include "device/gemm/gemm.h"

namespace ingot {

/// The three products of training, by how A and B are stored: forward A [m, k], B [n, k] (NT), input gradient
/// [m, k], [k, n] (NN), weight gradient [k, m], [k, n] (TN).
enum class GemmForm { nt, nn, tn };
constexpr auto enum_names(GemmForm) {
  return names_in_order<GemmForm>("NT", "NN", "TN");
}
inline constexpr GemmForm kEveryGemmForm[] = {GemmForm::nt, GemmForm::nn, GemmForm::tn};

/// rounded: f32 that is read as its rounding to bf16, of B only.
enum class ElementType { f32, bf16, rounded };
constexpr auto enum_names(ElementType) {
  return names_in_order<ElementType>("f32", "bf16", "rounded");
}

/// A product of matrices whose rows follow each other without gaps.
struct ProductKey {
  int64_t m = 0, n = 0, k = 0;
  GemmForm form = GemmForm::nt;
  ElementType a = ElementType::f32, b = ElementType::f32, c = ElementType::f32;
  bool accumulate = false;
  int64_t threads = 0;  ///< num_threads() where it is made
  bool operator==(const ProductKey&) const = default;
};

/// What is not said, or what the operands do not allow, the rule decides.
struct ProductChoice {
  std::optional<bool> transposed;  ///< C transposed = op(B) transposed op(A) transposed is computed
  std::optional<bool> in_place;    ///< the left operand of what is computed is read where it lies, not packed
  std::optional<bool> own_blocks;  ///< where it is packed, each thread has blocks of its own, none are shared
  std::optional<int64_t> kc;       ///< most k-steps of a packed panel of B (gemm_kernels.h), at least 16
  bool operator==(const ProductChoice&) const = default;
};

/// Every way to make the product but for kc, which the operands allow.
std::vector<ProductChoice> ways_to_make(const ProductKey& product);
/// That way with each kc that cuts k otherwise and fits the instruction set's panels.
std::vector<ProductChoice> with_each_kc(const ProductKey& product, const ProductChoice& way);

/// Immutable while it is installed; then it may be asked by any thread.
class ProductChoices {
 public:
  void add(const ProductKey& key, const ProductChoice& choice) { choices_[key] = choice; }
  /// Nothing is chosen for products by packed weights, for those with gaps between rows, and for A and B both
  /// transposed.
  ProductChoice of(const GemmArgs& args) const;
  /// Products for which something was chosen.
  int64_t found() const { return found_.load(std::memory_order_relaxed); }

 private:
  struct Hash {
    size_t operator()(const ProductKey& key) const;
  };
  std::unordered_map<ProductKey, ProductChoice, Hash> choices_;
  mutable std::atomic<int64_t> found_ = 0;
};

/// Lets gemm() follow these choices from now on; grouped and symmetric products keep the rule. They live
/// until others are installed; nullptr: the rule alone. Not while products run. Returns those before.
const ProductChoices* install_product_choices(const ProductChoices* choices);

/// Installs them in its scope.
class ScopedProductChoices {
 public:
  explicit ScopedProductChoices(const ProductChoices& choices) : before_(install_product_choices(&choices)) {}
  ~ScopedProductChoices() { install_product_choices(before_); }
  ScopedProductChoices(const ScopedProductChoices&) = delete;
  ScopedProductChoices& operator=(const ScopedProductChoices&) = delete;

 private:
  const ProductChoices* before_;
};

/// What is chosen for a product by what is installed.
ProductChoice installed_choice(const GemmArgs& args);

}  // namespace ingot
