// `ingot bench gemm MODEL --table FILE`: which way of making each product of a model's steps is the fastest
// on this machine, among ways with equal bits (device/gemm/product_choices.h). A way takes the rule's place
// only where it is faster beyond scatter.
#pragma once
#include <string>
#include <vector>

#include "device/gemm/product_table.h"
#include "measure/gemm_bench.h"

namespace ingot {

/// The rule and the way that looked the fastest, tried again in pairs of one trial each.
struct ProductTrial {
  std::string name;  ///< of the weight, "mlp.up"
  ProductKey product;
  ProductChoice way;
  std::vector<double> rule_seconds, way_seconds;  ///< of a product, by pair
  double flops() const;
  double gain() const;  ///< median of the pairs' rule_seconds / way_seconds
  /// Whether three of four pairs say that the way is faster, and their median says by 2 % or more.
  bool is_faster() const;
};

struct ProductTrials {
  std::string of;
  std::vector<ProductTrial> trials;
  std::vector<std::string> left_out;  ///< products larger than the options allow
};

/// The products that steps of the recipe make whole, one weight each, of every type that the options name:
/// f32, or bf16 rows by f32 weights that are read as bf16, as a run with one or the other makes them. Not
/// those of experts, which are grouped, of the head, whose rows go in chunks, nor of low rank.
std::vector<ProductTrial> products_to_try(const Recipe& recipe, const GemmBenchOptions& options);
/// Uses the thread pool, and installs choices while it measures; not to be called while other products run.
ProductTrials try_products(const Recipe& recipe, const GemmBenchOptions& options);

/// Of this machine: the ways that are faster, and the rows of `before` whose products were not tried.
ProductTable table_of(const ProductTrials& trials, ProductTable before = empty_product_table());
std::string to_text(const ProductTrials& trials);
/// docs/measuring.md lists the fields.
std::string to_json(const ProductTrials& trials);

}  // namespace ingot
