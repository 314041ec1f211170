// How fast matrix products are: those that a model's training makes, at sizes nearby, for few and for uneven rows an expert, over a
// grid of shapes, and for the few rows of decoding. Trials of everything take turns with measurements of the fp32 peak P. What
// `ingot bench gemm` prints.
#pragma once
#include <string>
#include <vector>

#include "base/enum.h"
#include "base/spread.h"
#include "device/gemm/gemm.h"
#include "train/recipe.h"

namespace ingot {

/// y = x Wᵀ with W [n, k], for each of `experts` matrices over its part of the rows.
struct Product {
  std::string name;                             ///< "mlp.up", that of the weight
  int64_t experts = 1, rows = 0, n = 0, k = 0;  ///< rows: of all experts together
  int64_t count = 0;                            ///< in one forward pass
  bool uneven = false;  ///< experts have from half to one and a half of the mean rows, evenly spread
  bool grouped() const { return experts > 1; }
  /// First row of each expert, and the end.
  std::vector<int64_t> offsets() const;
};

/// The products of a forward pass over one micro-batch of the recipe's first phase, with a vocabulary; each shape once, in the
/// order of execution. Counted on the null device: nothing of the model's size is allocated.
std::vector<Product> products_of(const Recipe& recipe);

/// The three products of training: forward (NT), input gradient (NN) and weight gradient (TN).
enum class GemmForm { nt, nn, tn };
constexpr auto enum_names(GemmForm) {
  return names_in_order<GemmForm>("NT", "NN", "TN");
}
inline constexpr GemmForm kEveryGemmForm[] = {GemmForm::nt, GemmForm::nn, GemmForm::tn};

enum class GemmPart { model, advice, experts, map };
constexpr auto enum_names(GemmPart) {
  return names_in_order<GemmPart>("model", "advice", "experts", "map");
}

struct GemmRow {
  GemmPart part = GemmPart::model;
  Product product;
  GemmForm form = GemmForm::nt;
  DType type = DType::f32;  ///< of both operands
  Spread share;             ///< of P, measured directly before and after each trial; 1 is all
  Spread seconds;
  double flops() const;
  double bytes() const;  ///< operands and result
};

/// A weight read once for few rows.
struct DecodeRow {
  Product product;
  DType type = DType::f32;
  bool packed = false;
  Spread bytes_per_second;
};

struct GemmBenchOptions {
  std::vector<GemmPart> parts{GemmPart::model, GemmPart::advice, GemmPart::experts, GemmPart::map};
  bool decode = true;
  std::vector<DType> types{DType::f32, DType::bf16};
  std::vector<int64_t> band{32, 64, 128, 256};            ///< rows an expert
  std::vector<int64_t> sizes{128, 256, 512, 1024, 2048};  ///< of the map, m and n
  std::vector<int64_t> depths{256, 1024};                 ///< of the map, k
  std::vector<int64_t> decode_rows{1, 8};
  int64_t largest = int64_t{1} << 30;  ///< bytes of a product; larger ones are left out
  int trials = 5;
  double seconds = 0.01;  ///< of a trial, at least
};

struct GemmBenchReport {
  std::string of, isa;
  int threads = 1;
  double peak_gflops = 0, read_gbs = 0;  ///< medians
  std::vector<GemmRow> rows;
  std::vector<DecodeRow> decode;
  std::vector<std::string> left_out;  ///< products that are larger than the options allow
  std::vector<std::string> rules;     ///< see sizing_rules()
};

/// Sizes worth trying instead of one: multiples of 64 beside it, within an eighth; of small ones multiples of 16.
std::vector<int64_t> sizes_near(int64_t size);
/// Which sizes of a model are not multiples of the power of two that the AMD paper asks for (§V-A: up to 64), and the next that is.
std::vector<std::string> sizing_rules(const ModelConfig& model, int64_t rows);

/// How all three products do together: FLOPs over time over P. Rows of one product and type.
double combined_share(const std::vector<const GemmRow*>& rows);
/// Widths of the model whose products are slower per FLOP than those of a size nearby by more than 3 % and than the measurements
/// scatter, with what that size would change. From the rows of parts model and advice.
std::vector<std::string> sizing_advice(const GemmBenchReport& report);

/// Uses the pool; not while other kernels run.
GemmBenchReport bench_gemm(const Recipe& recipe, const GemmBenchOptions& options);

/// Tables and advice.
std::string to_text(const GemmBenchReport& report);
/// {"format": 1, "of", "isa", "threads", "peak_gflops", "read_gigabytes_per_second", "products": [...], "decode": [...], "advice",
/// "rules", "left_out"}; docs/measuring.md has the fields.
std::string to_json(const GemmBenchReport& report);
/// One HTML file with heat maps that needs no network.
std::string render_gemm_page(const GemmBenchReport& report);

}  // namespace ingot
