// config.json field by field against transformers. A case is the config of a tiny model with one field
// changed, and what transformers computed with it (tools/oracle/config_fuzz.py): here the model is refused
// with a message that names the field, or its logits are the same. The other way round, a model with one
// option changed is refused or written; the script then loads what was written. Weights are a function of
// their names, so there are no files of them. $INGOT_CONFIG_CASES names another file of cases, whose outcomes
// go to $INGOT_CONFIG_OUTCOMES.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "models/huggingface.h"
#include "models/model.h"
#include "ops/reference.h"
#include "support/support.h"

namespace ingot::test::config_fuzz_oracle_test {

using nlohmann::json;
using reference::Array;

constexpr int64_t kTokens = 12, kCompared = 2;  // of each sequence the last two tokens' logits
constexpr double kTolerance = 1e-9;             // of the largest

uint64_t fnv1a(const std::string& text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const unsigned char c : text) h = (h ^ c) * 0x100000001b3u;
  return h;
}

/// Uniform in [-1, 1), with 24 bits.
double uniform(const std::string& name, uint64_t element) {
  uint64_t z = fnv1a(name) + (element + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return static_cast<double>(z >> 40) / 8388608.0 - 1;
}

/// The value of a weight is offset + scale * uniform, by its name and shape; the script has the same rule.
std::vector<double> weight_values(const std::string& name, const Shape& shape) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  double offset = 0, scale = 0;
  if (has("balancing_biases"))
    scale = 0.125;
  else if (name.ends_with("temp"))
    offset = 1.25, scale = 0.5;
  else if (name.ends_with("bias"))
    scale = 0.25;
  else if (shape.rank() == 1)
    offset = 1, scale = 0.5;
  else if (has("embed_tokens") || has("lm_head") || has("wte.") || has("wpe."))
    scale = 0.75;
  else {
    const int64_t fan = has("conv_qk") ? shape[1] * shape[2]
                        : has(".h.")   ? shape[0]
                                       : shape[shape.rank() - 1];
    const bool router = name.ends_with("gate.weight") || name.ends_with("out_proj.weight");
    scale = (router ? 6.0 : 2.0) / std::sqrt(static_cast<double>(fan));
  }
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = offset + scale * uniform(name, i);
  if (has("balancing_biases")) values.back() = -1;
  return values;
}

/// Which tensors a model has, as one number.
uint64_t digest(const std::vector<ExternalTensor>& tensors) {
  std::map<std::string, std::string> lines;
  for (const ExternalTensor& e : tensors)
    for (int i = 0; i < e.shape.rank(); ++i) lines[e.name] += fmt::format(" {}", e.shape[i]);
  std::string text;
  for (const auto& [name, shape] : lines) text += name + shape + "\n";
  return fnv1a(text);
}

/// Logits of the last tokens of one sequence, in double.
std::vector<double> logits_of(const ModelConfig& config, const HuggingfaceLayout& layout) {
  Model model(config, Precision::f64());
  for (const ExternalTensor& e : huggingface_tensors(model.decoder(), layout)) {
    std::vector<double> values = weight_values(e.name, e.shape);
    if (e.parameter >= 0)
      copy_from_external(e, Tensor(values.data(), e.shape, DType::f64), model.weights().master(e.parameter));
    else
      for (size_t i = 0; i < values.size(); ++i)
        model.router_bias(e.layer).as<float>()[i] = static_cast<float>(values[i]);
  }
  model.weights().refresh_compute();
  const BatchLayout rows{kTokens, {{0, kTokens, 0, nullptr}}};
  std::vector<int32_t> ids, positions;
  for (int32_t t = 0; t < kTokens; ++t) {
    ids.push_back(static_cast<int32_t>((5 * t + 3) % config.vocab));
    positions.push_back(t);
  }
  HeapArena arena;
  Tape tape(arena, {.record = false});
  Context c{tape, model.weights(), &rows, tape.leaf(Tensor::of(positions.data(), {kTokens}))};
  model.equip(c);
  const DecoderOutput out = model.decoder().forward(c, tape.leaf(Tensor::of(ids.data(), {kTokens})));
  const Array all = reference::load(model.decoder().logits(c, out.hidden_TD).tensor());
  return {all.end() - kCompared * config.vocab, all.end()};
}

/// From transformers' logits.
double difference(const std::vector<double>& ours, const json& c) {
  return relative_difference(Array(ours.begin(), ours.end()), c.at("logits").get<std::vector<double>>());
}

bool is_too_short(const ModelConfig& m) {
  return m.position == PositionKind::learned && m.context < kTokens;
}

/// Imports a case: {"outcome": "equal" | "different" | "refused" | "internal" | "accepted", ...}. "accepted":
/// transformers computed nothing.
json import_case(const json& c) {
  try {
    const ModelConfig m = model_from_huggingface(c.at("config"), "config.json");
    HuggingfaceLayout layout = huggingface_layout(m);
    layout.family = json::parse(c.at("config").get<std::string>()).at("model_type");
    const uint64_t tensors = digest(huggingface_tensors(Decoder(m), layout));
    if (is_too_short(m)) return {{"outcome", "accepted"}};
    const bool known = c.contains("logits");
    if (known && tensors != c.at("tensors").get<uint64_t>())
      return {{"outcome", "refused"}, {"message", "other tensors"}};
    const std::vector<double> ours = logits_of(m, layout);
    if (!known) return {{"outcome", "accepted"}};
    return {{"outcome", difference(ours, c) <= kTolerance ? "equal" : "different"},
            {"difference", difference(ours, c)}};
  } catch (const Error& e) {
    return {{"outcome", "refused"}, {"message", e.what()}};
  } catch (const InternalError& e) {
    return {{"outcome", "internal"}, {"message", e.what()}};
  }
}

/// Exports a case: the model of a config with one option changed.
json export_case(const json& c) {
  try {
    const ModelConfig base = model_from_huggingface(c.at("config"), "config.json");
    ConfigNode tree = to_node(base);
    for (const std::string option : c.at("options")) apply_override(tree, to_node(base), "--" + option);
    const ModelConfig m = read_config(tree, ModelConfig());
    const HuggingfaceLayout layout = huggingface_layout(m);
    const Decoder decoder(m);
    const uint64_t tensors = digest(huggingface_tensors(decoder, layout));
    const std::string text = huggingface_config(m, layout, {});
    if (is_too_short(m)) return {{"outcome", "refused"}, {"message", "too short for the comparison"}};
    const std::vector<double> ours = logits_of(m, layout);
    if (c.contains("logits") && difference(ours, c) > kTolerance)
      return {{"outcome", "different"}, {"difference", difference(ours, c)}};
    return {{"outcome", "written"}, {"config", text}, {"tensors", tensors}, {"logits", ours}};
  } catch (const Error& e) {
    return {{"outcome", "refused"}, {"message", e.what()}};
  } catch (const InternalError& e) {
    return {{"outcome", "internal"}, {"message", e.what()}};
  }
}

/// Every case of the file has the outcome that it is held to: equal, or refused with the words that it gives.
TEST(ConfigFuzz, EveryFieldIsReadAsTransformersReadsItOrRefusedByName) {
  const char* file = std::getenv("INGOT_CONFIG_CASES");
  std::istringstream lines(read_text(file != nullptr ? file : fixture("config_fuzz.jsonl")));
  std::string outcomes;
  int64_t cases = 0;
  for (std::string line; std::getline(lines, line);) {
    const json c = json::parse(line);
    json result = c.contains("options") ? export_case(c) : import_case(c);
    const std::string outcome = result.at("outcome");
    EXPECT_TRUE(outcome != "different" && outcome != "internal") << c.at("name") << ": " << result.dump();
    if (c.contains("expected")) {
      EXPECT_EQ(outcome, c.at("expected").get<std::string>()) << c.at("name") << ": " << result.dump();
      if (outcome == "refused") {
        EXPECT_NE(result.at("message").get<std::string>().find(c.at("words").get<std::string>()),
                  std::string::npos)
            << c.at("name") << ": " << result.dump();
      }
    }
    result["name"] = c.at("name");
    outcomes += result.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
    ++cases;
  }
  EXPECT_GT(cases, 0);
  if (const char* to = std::getenv("INGOT_CONFIG_OUTCOMES")) write_text(to, outcomes);
}

}  // namespace ingot::test::config_fuzz_oracle_test
