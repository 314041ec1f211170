// See random_model.h.
#include "exchange/random_model.h"

#include <cmath>
#include <cstring>

#include "base/hash.h"
#include "base/parallel.h"
#include "checkpoint/model_state.h"
#include "exchange/derived_folder.h"

namespace ingot {
namespace {

/// The elements of one rule: constants, or splitmix64 of the seed and the element's index.
class Values {
 public:
  Values(const ParameterSpec& spec, uint64_t seed)
      : constant_(spec.init.kind == Init::Kind::constant),
        value_(static_cast<float>(spec.init.value)),
        start_(hash64(spec.name) + seed) {
    const double reach =
        spec.init.kind == Init::Kind::uniform ? spec.init.value : spec.init.value * std::sqrt(3.0);
    scale_ = static_cast<float>(reach / 0x1p31);
  }
  float operator()(int64_t element) const {
    if (constant_) return value_;
    uint64_t z = start_ + (static_cast<uint64_t>(element) + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return static_cast<float>(static_cast<int32_t>(z >> 32)) * scale_;
  }

 private:
  bool constant_;
  float value_, scale_ = 0;
  uint64_t start_;
};

}  // namespace

void random_values(const ParameterSpec& spec, uint64_t seed, int64_t first, const Tensor& out) {
  const Values value(spec, seed);
  parallel_for(out.numel(), 1 << 16, [&](int64_t begin, int64_t end) {
    if (out.dtype() == DType::bf16)
      for (int64_t i = begin; i < end; ++i) out.as<bf16>()[i] = to_bf16(value(first + i));
    else
      for (int64_t i = begin; i < end; ++i) out.as<float>()[i] = value(first + i);
  });
}

std::string write_random_model(FileSystem& fs, const ModelConfig& config, DType dtype, uint64_t seed,
                               const std::string& folder) {
  INGOT_CHECK(dtype == DType::f32 || dtype == DType::bf16, "{}", name_of(dtype));
  require_new_folder(fs, folder);
  Model model(config, Precision::f32(), {}, Backing::nothing);  // its router biases have memory
  const ParameterTable& table = model.decoder().table();
  std::vector<Piece> pieces;
  for (int i = 0; i < table.size(); ++i) {
    const ParameterSpec& spec = table[i];
    Piece piece{spec.name, TensorKind::weight, dtype, spec.shape, Region::whole(spec.shape)};
    piece.source = [&spec, dtype, seed](const Region& region,
                                        void* out) {  // pieces are cut along their first dimension only
      const int64_t row = spec.shape.rank() > 0 && spec.shape[0] > 0 ? spec.shape.numel() / spec.shape[0] : 0;
      random_values(spec, seed, region.offset.rank() > 0 ? region.offset[0] * row : 0,
                    Tensor(out, region.shape, dtype));
    };
    pieces.push_back(std::move(piece));
  }
  for (Piece& p : bias_pieces(model)) pieces.push_back(std::move(p));
  return write_new_model(fs,
                         {.config = config,
                          .dtype = dtype,
                          .pieces = std::move(pieces),
                          .protection = "random",
                          .origin = {{"made_by", "random"}},
                          .max_file_bytes = int64_t{1} << 28},
                         folder);
}

}  // namespace ingot
