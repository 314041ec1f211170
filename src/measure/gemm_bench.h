// `ingot bench gemm`: speed of the matrix products of a model's training, of neighbouring sizes, of few and
// uneven rows per expert, of a grid of shapes, and of the few rows of decoding. Trials are interleaved with
// measurements of the fp32 peak P.
#pragma once
#include <string>
#include <vector>

#include "base/enum.h"
#include "base/spread.h"
#include "device/gemm/gemm.h"
#include "device/gemm/product_choices.h"
#include "train/recipe.h"

namespace ingot {

/// y = x Wᵀ with W [n, k], for each of `experts` matrices on its own rows.
struct Product {
  std::string name;                             ///< of the weight, "mlp.up"
  int64_t experts = 1, rows = 0, n = 0, k = 0;  ///< rows of all experts together
  int64_t count = 0;                            ///< per forward pass
  bool uneven = false;                          ///< rows per expert go evenly from 0.5 to 1.5 of the mean
  bool grouped() const { return experts > 1; }
  /// First row of each expert, and the total.
  std::vector<int64_t> offsets() const;
};

/// The products of a forward pass over one micro-batch of the recipe's first phase, each shape once, in the
/// order of execution. Counted on the null device: no weights or activations are allocated. The model needs a
/// vocabulary.
std::vector<Product> products_of(const Recipe& recipe);

enum class GemmPart { model, advice, experts, map };
constexpr auto enum_names(GemmPart) {
  return names_in_order<GemmPart>("model", "advice", "experts", "map");
}

struct GemmRow {
  GemmPart part = GemmPart::model;
  Product product;
  GemmForm form = GemmForm::nt;
  DType type = DType::f32;  ///< of both operands
  Spread share;             ///< of P, measured directly before and after each trial; 1: P
  Spread seconds;
  double flops() const;
  double bytes() const;  ///< of operands and result
};

/// A product of few rows, bound by reading the weight.
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
  std::vector<int64_t> band{32, 64, 128, 256, 512, 1024, 2048};  ///< rows per expert
  std::vector<int64_t> sizes{128, 256, 512, 1024, 2048};         ///< of the map, m and n
  std::vector<int64_t> depths{256, 1024};                        ///< of the map, k
  std::vector<int64_t> decode_rows{1, 8};
  int64_t largest = int64_t{1} << 30;  ///< bytes of operands and result, and of a weight's copies
  int trials = 5;
  double seconds = 0.01;  ///< per trial, at least
  double read_gbs = 0;    ///< B where it is known; 0: measured
};

struct GemmBenchReport {
  std::string of, isa;
  int threads = 1;
  double peak_gflops = 0, read_gbs = 0;  ///< medians
  std::vector<GemmRow> rows;
  std::vector<DecodeRow> decode;
  std::vector<std::string> left_out;  ///< products larger than the options allow
  std::vector<std::string> rules;     ///< see sizing_rules()
};

/// The neighbouring multiples of 64 (of 16 below 256), at most an eighth away.
std::vector<int64_t> sizes_near(int64_t size);
/// Sizes of a model that break the rules of [ZAYA1-AMD] §V-A, for `batch` sequences of `length` tokens on
/// `tensor` ranks that share each product: rows, widths, widths of a rank and the vocabulary are multiples of
/// powers of two up to 64; sequences times heads are a multiple of the ranks.
std::vector<std::string> sizing_rules(const ModelConfig& model, int64_t batch, int64_t length,
                                      int64_t tensor = 1);

/// Share of P of the three products together: FLOPs / time / P. Takes rows of one product and type.
double combined_share(const std::vector<const GemmRow*>& rows);
/// Widths of the model that a neighbouring size beats in time per FLOP by more than 3 % and by more than the
/// trials scatter, and what that size would change. Compares the rows of parts model and advice.
std::vector<std::string> sizing_advice(const GemmBenchReport& report);

/// Uses the thread pool; not to be called while other kernels run.
GemmBenchReport bench_gemm(const Recipe& recipe, const GemmBenchOptions& options);

/// Tables and advice.
std::string to_text(const GemmBenchReport& report);
/// docs/measuring.md lists the fields.
std::string to_json(const GemmBenchReport& report);
/// One self-contained HTML page with heat maps.
std::string render_gemm_page(const GemmBenchReport& report);

}  // namespace ingot
