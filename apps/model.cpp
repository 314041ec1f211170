// `ingot model PRESET`: exact parameter counts, memory and FLOPs of an architecture, without allocating it.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/checks.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "base/progress.h"
#include "exchange/random_model.h"
#include "measure/step_bench.h"
#include "models/decoder.h"
#include "models/presets.h"
#include "report/table.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

struct ModelArguments {
  std::string preset;
  JsonOption json;
  bool tensors = false;
  int64_t context = 4096, tokens = 0;
  std::string random, dtype = "bf16";
  int64_t seed = 1;
};

/// What the layers that attend keep of a sequence. Layers with a window keep all tokens too.
void describe_cache(const ModelConfig& m, int64_t tokens, Json& j) {
  const int64_t layers = m.cache_layer(m.layers), token = 2 * layers * m.cache_width();
  j["cache_layers"] = layers;
  j["cache_bytes_per_token_bf16"] = token;
  int64_t sequence = 0;
  if (m.attention == AttentionKind::cca) {  // two convolution inputs and the delayed half of the values, fp32
    sequence = 4 * layers * (2 * (m.heads + m.kv_heads) * m.key_width() + m.kv_heads * m.key_width() / 2);
    j["cache_bytes_per_sequence_fp32"] = sequence;
  }
  j["tokens"] = tokens;
  j["cache_bytes"] = tokens * token + sequence;
}

Json describe(const Decoder& d, int64_t context, int64_t tokens) {
  const ModelConfig& m = d.config();
  const ParameterCounts n = count_parameters(d);
  Json j;
  j["parameters"] = n.total;
  j["embedding"] = n.embedding;
  j["without_embedding"] = n.without_embedding;
  j["active"] = n.active;
  j["active_without_embedding"] = n.active_without_embedding;
  j["buffers"] = n.buffers;
  static const char* const kRoles[] = {"embedding", "head",   "matrices",     "experts",      "norms",
                                       "biases",    "scales", "convolutions", "temperatures", "router"};
  for (int r = 0; r < 10; ++r)
    if (const int64_t count = d.table().total(static_cast<ParamRole>(r)); count > 0)
      j["parts"][kRoles[r]] = count;
  j["activation_ratio"] = static_cast<double>(n.active) / static_cast<double>(n.total);
  if (m.moe.experts > 0) {
    // A shared expert of twice the width counts as two, as publications count them.
    const double shared = static_cast<double>(m.moe.shared_hidden) / static_cast<double>(m.moe.hidden),
                 experts = static_cast<double>(m.moe.experts) + shared,
                 chosen = static_cast<double>(m.moe.top_k) + shared;
    j["experts"] = experts;
    j["experts_per_token"] = chosen;
    j["sparsity"] = experts / chosen;
    j["granularity"] = 2.0 * static_cast<double>(m.width) / static_cast<double>(m.moe.hidden);
  }
  j["weights_bytes_bf16"] = 2 * n.total;
  j["training_bytes_fp32_adamw"] =
      16 * n.total;  // masters, gradients, two moments; Muon's matrices need 4 less
  describe_cache(m, tokens, j);
  j["context"] = context;
  j["training_flops_per_token"] = training_flops_per_token(d, context);
  return j;
}

/// The preset's model with the fields of the command line.
ModelConfig model_with(const std::string& preset, const std::vector<std::string>& fields) {
  for (const std::string& field : fields) {
    if (!field.starts_with("-"))
      throw UsageError(fmt::format("`ingot model` does not take the argument '{}'", field),
                       "`ingot model --help` lists the arguments");
    if (!field.starts_with("--model."))
      throw UsageError(fmt::format("'{}': a model has no such field", field),
                       "set fields of the model: --model.layers=12; `ingot model --help` lists the options");
    if (field.starts_with("--model.preset"))
      throw UsageError("the preset is named twice", "name it as `ingot model PRESET` alone");
  }
  PresetStep step{.preset = preset, .batch = 1, .length = 1};
  return preset_recipe(step, fields).model;
}

std::string model_text(const Decoder& d, const Json& j) {
  const ModelConfig& m = d.config();
  const std::string head =
      fmt::format("{}: {} layers, width {}, {} query and {} key-value heads of {}, vocabulary {}\n", m.preset,
                  m.layers, m.width, m.heads, m.kv_heads, m.key_width(), group_digits(m.vocab));
  const auto shown = [](const Json& value) {
    return value.is_number_integer() ? group_digits(value.get<int64_t>())
                                     : fmt::format("{:.6g}", value.get<double>());
  };
  Table table({words(""), {}});
  for (const auto& [key, value] : j.items()) {
    if (!value.is_object())
      table.add({"  " + key, shown(value)});
    else
      for (const auto& [part, count] : value.items()) table.add({"    " + part, shown(count)});
  }
  return head + table.text();
}

int show(const ModelArguments& o, const std::vector<std::string>& fields) {
  if (o.preset.empty()) {
    if (!fields.empty())
      throw UsageError(fmt::format("'{}' changes a preset, but none is named", fields.front()),
                       "name one: ingot model PRESET " + fields.front());
    std::string list;
    for (const std::string& name : preset_names()) list += name + "\n";
    o.json.print(list, Json(preset_names()).dump(2));
    return 0;
  }
  const ModelConfig m = model_with(o.preset, fields);
  if (!o.random.empty()) {
    if (o.dtype != "bf16" && o.dtype != "f32")
      throw Error(fmt::format("--dtype={}", o.dtype), "use bf16 or f32");
    const DType dtype = o.dtype == "bf16" ? DType::bf16 : DType::f32;
    std::cout << write_random_model(real_file_system(), m, dtype, static_cast<uint64_t>(o.seed), o.random)
              << "\n";
    return 0;
  }
  const Decoder d(m);
  Json j = describe(d, o.context, o.tokens > 0 ? o.tokens : o.context);
  if (o.tensors)
    for (int i = 0; i < d.table().size(); ++i) j["tensors"][d.table()[i].name] = d.table()[i].shape.numel();
  o.json.print(model_text(d, j), j.dump(2) + "\n");
  return 0;
}

}  // namespace

void add_model_command(CLI::App& app, int& code) {
  auto o = std::make_shared<ModelArguments>();
  CLI::App* c = app.add_subcommand("model", "exact parameter counts, memory and FLOPs of a preset");
  c->add_option("preset", o->preset, "name of a preset; without it: lists the presets");
  add_json_option(*c, o->json);
  c->add_flag("--tensors", o->tensors, "list every tensor with its count");
  c->add_option("--context", o->context, "sequence length in tokens, for the FLOPs of attention")
      ->check(in(between(1, bounds::kSequence)))
      ->capture_default_str();
  c->add_option("--tokens", o->tokens, "tokens of a sequence, for the bytes of its cache; 0: --context")
      ->check(in(up_to(bounds::kSequence)));
  c->add_option("--random", o->random,
                "write a checkpoint of random weights to this new folder, for benchmarks");
  c->add_option("--dtype", o->dtype, "dtype of the random weights: bf16 or f32")->capture_default_str();
  c->add_option("--seed", o->seed, "seed of the random weights")
      ->check(in(any_integer()))
      ->capture_default_str();
  c->footer(
      "Examples:\n"
      "  ingot model                                      # the presets\n"
      "  ingot model zaya1-8b --json\n"
      "  ingot model qwen3-235b --tokens=131072           # with the cache of so long a sequence\n"
      "  ingot model llama-3.2-1b --model.kv_heads=32     # any field of a model can be set; small presets "
      "have 8192 words");
  c->allow_extras();
  c->callback([o, c, &code] { code = show(*o, c->remaining()); });
}

}  // namespace ingot
