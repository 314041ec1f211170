// See config.h: what a valid model is.
#include "models/config.h"

#include <cmath>

namespace ingot {

int64_t ModelConfig::rotary_dims() const {
  if (position != PositionKind::rope) return 0;
  return static_cast<int64_t>(std::llround(static_cast<double>(key_width()) * rotary_fraction));
}

void ModelConfig::validate(ConfigErrors& e) const {
  for (const auto& [name, value] : {std::pair<const char*, int64_t>{"width", width}, {"layers", layers},
                                    {"heads", heads}, {"kv_heads", kv_heads}, {"context", context}})
    if (value < 1) e.add(name, "must be at least 1, found {}", value);
  if (e.count() > 0) return;
  if (vocab < 0) e.add("vocab", "must not be negative, found {}", vocab);
  if (heads % kv_heads != 0) e.add("kv_heads", "heads = {} must be a multiple of kv_heads = {}", heads, kv_heads);
  if (head_width == 0 && width % heads != 0)
    e.add("heads", "width = {} is not a multiple of heads = {}; set head_width", width, heads);
  if (rotary_dims() % 2 != 0 || rotary_dims() > key_width())
    e.add("rotary_fraction", "gives {} rotated channels of {}; it must be even and at most the head's width",
          rotary_dims(), key_width());
  if (attention == AttentionKind::cca) {
    if (kv_heads * key_width() % 2 != 0)
      e.add("kv_heads", "cca delays half of kv_heads * head_width = {} value channels; that must be even",
            kv_heads * key_width());
    if (position != PositionKind::rope) e.add("position", "cca rotates queries and keys; use rope");
    if (qk_norm) e.add("qk_norm", "cca normalises queries and keys itself");
  }
  if (norm_bias && norm == NormChoice::rms) e.add("norm_bias", "rms norm has no bias");
  if (moe.experts == 0) return;
  if (moe.top_k < 1 || moe.top_k > moe.experts)
    e.add("moe.top_k", "must be between 1 and experts = {}, found {}", moe.experts, moe.top_k);
  if (moe.hidden < 1) e.add("moe.hidden", "must be at least 1, found {}", moe.hidden);
  if (moe.score == RouterScore::softmax_last && moe.top_k == 1)
    e.add("moe.score", "softmax over one chosen expert is always 1, so the router would learn nothing; use softmax_first");
  if (moe.router == RouterKind::zaya && moe.router_width < 1)
    e.add("moe.router_width", "must be at least 1, found {}", moe.router_width);
  if (moe.first_dense < 0 || moe.first_dense > layers)
    e.add("moe.first_dense", "must be between 0 and layers = {}, found {}", layers, moe.first_dense);
}

}  // namespace ingot
