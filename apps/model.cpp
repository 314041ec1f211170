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
  int64_t context = 4096;
  std::string random, dtype = "bf16";
  int64_t seed = 1;
};

Json describe(const Decoder& d, int64_t context) {
  const ModelConfig& m = d.config();
  const ParameterCounts n = count_parameters(d);
  Json j;
  j["parameters"] = n.total;
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
    j["sparsity"] = static_cast<double>(n.total) / static_cast<double>(n.active);
    j["granularity"] = 2.0 * static_cast<double>(m.width) / static_cast<double>(m.moe.hidden);
  }
  j["weights_bytes_bf16"] = 2 * n.total;
  j["training_bytes_fp32_adamw"] =
      16 * n.total;  // masters, gradients, two moments; Muon's matrices need 4 less
  j["cache_bytes_per_token_bf16"] = 2 * m.layers * m.cache_width();
  if (m.attention == AttentionKind::cca)  // two convolution inputs and the delayed half of the values, fp32
    j["cache_bytes_per_sequence_fp32"] =
        4 * m.layers * (2 * (m.heads + m.kv_heads) * m.key_width() + m.kv_heads * m.key_width() / 2);
  j["context"] = context;
  j["training_flops_per_token"] = training_flops_per_token(d, context);
  return j;
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

int show(const ModelArguments& o) {
  if (o.preset.empty()) {
    std::string list;
    for (const std::string& name : preset_names()) list += name + "\n";
    o.json.print(list, Json(preset_names()).dump(2));
    return 0;
  }
  ModelConfig m = model_preset(o.preset);
  if (m.vocab == 0) m.vocab = 8192;  // small presets take the tokenizer's vocabulary; shown with 8192
  if (!o.random.empty()) {
    if (o.dtype != "bf16" && o.dtype != "f32")
      throw Error(fmt::format("--dtype={}", o.dtype), "use bf16 or f32");
    const DType dtype = o.dtype == "bf16" ? DType::bf16 : DType::f32;
    std::cout << write_random_model(real_file_system(), m, dtype, static_cast<uint64_t>(o.seed), o.random)
              << "\n";
    return 0;
  }
  const Decoder d(m);
  Json j = describe(d, o.context);
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
  c->add_option("--random", o->random,
                "write a checkpoint of random weights to this new folder, for benchmarks");
  c->add_option("--dtype", o->dtype, "dtype of the random weights: bf16 or f32")->capture_default_str();
  c->add_option("--seed", o->seed, "seed of the random weights")
      ->check(in(any_integer()))
      ->capture_default_str();
  c->footer("Examples:\n  ingot model                  # the presets\n  ingot model zaya1-8b --json");
  c->callback([o, &code] { code = show(*o); });
}

}  // namespace ingot
