// Attention of programs that use the library: registered under a name, chosen by model.custom_attention.
// docs/extend-layer.md.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "nn/attention.h"

namespace ingot {

struct ModelConfig;

/// Makes the attention of one layer and adds its parameters to the table, under `prefix`. Called once per
/// layer, in order.
using AttentionMaker = std::function<std::unique_ptr<Attention>(
    ParameterTable& table, const std::string& prefix, const ModelConfig& config, int64_t layer)>;

/// Before any model is made; not thread-safe. Error for a name that is taken or empty.
void register_attention(const std::string& name, AttentionMaker make);
/// nullptr where there is none.
const AttentionMaker* find_attention(const std::string& name);
/// "registered: a, b", or "none is".
std::string describe_registered_attentions();

}  // namespace ingot
