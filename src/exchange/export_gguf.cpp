// See export.h: a GGUF file for llama.cpp. Source of names, keys and the order of query and key rows: llama.cpp,
// gguf-py/gguf/constants.py and convert_hf_to_gguf.py.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/progress.h"
#include "checkpoint/layout.h"
#include "exchange/export.h"
#include "exchange/gguf.h"
#include "exchange/statistics.h"
#include "tokenizer/tokenizer_spec.h"

namespace ingot {
namespace {

/// A tensor of the file: a view of a parameter, or values of its own.
struct Item {
  ExternalTensor view;
  Shape shape;
  std::vector<float> values;
  bool exact = false;  ///< always F32: vectors and routers
};

class Items {
 public:
  explicit Items(const Decoder& d) : decoder_(d) {}
  void add(const std::string& name, const std::string& ours, Shape shape, std::vector<int64_t> stride, int64_t offset = 0,
           bool exact = false) {
    const int p = decoder_.table().find(ours);
    INGOT_CHECK(p >= 0, "no parameter '{}'", ours);
    items_.push_back({{name, shape, p, -1, offset, std::move(stride)}, shape, {}, exact || shape.rank() == 1});
  }
  void whole(const std::string& name, const std::string& ours, bool exact = false) {
    const Shape& s = decoder_.table()[decoder_.table().find(ours)].shape;
    if (s.rank() == 1) return add(name, ours, s, {1});
    if (s.rank() == 2) return add(name, ours, s, {s[1], 1}, 0, exact);
    add(name, ours, s, {s[1] * s[2], s[2], 1});
  }
  /// Rows of a matrix, or elements of a vector.
  void rows(const std::string& name, const std::string& ours, int64_t begin, int64_t count) {
    const Shape& s = decoder_.table()[decoder_.table().find(ours)].shape;
    if (s.rank() == 1) return add(name, ours, {count}, {1}, begin);
    add(name, ours, {count, s[1]}, {s[1], 1}, begin * s[1]);
  }
  /// Rows of `heads` heads of width `k`, rotated pairs side by side: (0, k/2, 1, k/2 + 1, ...), as arch llama rotates them.
  void interleaved_rows(const std::string& name, const std::string& ours, int64_t begin, int64_t heads, int64_t k) {
    const Shape& s = decoder_.table()[decoder_.table().find(ours)].shape;
    const int64_t d = s.rank() == 1 ? 1 : s[1];
    add(name, ours, {heads, k / 2, 2, d}, {k * d, d, k / 2 * d, 1}, begin * d, s.rank() == 1);
    items_.back().shape = s.rank() == 1 ? Shape{heads * k} : Shape{heads * k, d};
  }
  /// Rows [begin, begin + count) of every expert.
  void expert_rows(const std::string& name, const std::string& ours, int64_t begin, int64_t count) {
    const Shape& s = decoder_.table()[decoder_.table().find(ours)].shape;
    add(name, ours, {s[0], count, s[2]}, {s[1] * s[2], s[2], 1}, begin * s[2]);
  }
  void values(const std::string& name, std::vector<float> v) {
    const Shape shape{static_cast<int64_t>(v.size())};
    items_.push_back({{name, shape, -1, -1, 0, {1}}, shape, std::move(v), true});
  }
  std::vector<Item> take() { return std::move(items_); }

 private:
  const Decoder& decoder_;
  std::vector<Item> items_;
};

void gpt2_items(const ModelConfig& m, Items& n) {
  n.whole("token_embd.weight", "embed.weight");
  n.whole("position_embd.weight", "position_embed.weight", true);
  for (int64_t l = 0; l < m.layers; ++l) {
    const std::string e = fmt::format("blk.{}.", l), o = fmt::format("layers.{}.", l);
    for (const char* part : {".weight", ".bias"})
      for (const auto& [name, ours] : {std::pair<const char*, const char*>{"attn_norm", "attention_norm"},
                                       {"attn_qkv", "attention.qkv"},
                                       {"attn_output", "attention.out"},
                                       {"ffn_norm", "mlp_norm"},
                                       {"ffn_up", "mlp.up"},
                                       {"ffn_down", "mlp.down"}})
        n.whole(e + name + part, o + ours + part);
  }
  n.whole("output_norm.weight", "final_norm.weight");
  n.whole("output_norm.bias", "final_norm.bias");
}

void llama_attention_items(const ModelConfig& m, Items& n, int64_t l, bool interleaved) {
  const std::string e = fmt::format("blk.{}.", l), o = fmt::format("layers.{}.attention.", l);
  const int64_t k = m.key_width(), q = m.heads * k, kv = m.kv_heads * k;
  for (const char* part : {".weight", ".bias"}) {
    if (part[1] == 'b' && !m.attention_bias) continue;
    const std::string qkv = o + "qkv" + part;
    if (interleaved) {
      n.interleaved_rows(e + "attn_q" + part, qkv, 0, m.heads, k);
      n.interleaved_rows(e + "attn_k" + part, qkv, q, m.kv_heads, k);
    } else {
      n.rows(e + "attn_q" + part, qkv, 0, q);
      n.rows(e + "attn_k" + part, qkv, q, kv);
    }
    n.rows(e + "attn_v" + part, qkv, q + kv, kv);
    n.whole(e + "attn_output" + part, o + "out" + part);
  }
  if (!m.qk_norm) return;
  n.whole(e + "attn_q_norm.weight", o + "q_norm.weight");
  n.whole(e + "attn_k_norm.weight", o + "k_norm.weight");
}

/// Llama 3's rotation as divisors of the frequencies.
std::vector<float> frequency_divisors(const ModelConfig& m) {
  const RopeScalingConfig& s = m.rope_scaling;
  const double original = static_cast<double>(s.original_context), k = static_cast<double>(m.key_width());
  std::vector<float> divisors;
  for (int64_t i = 0; i < m.key_width() / 2; ++i) {
    const double length = 2 * std::numbers::pi * std::pow(m.rope_theta, 2 * static_cast<double>(i) / k);
    const double smooth = std::clamp((original / length - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor), 0.0, 1.0);
    divisors.push_back(static_cast<float>(1 / ((1 - smooth) / s.factor + smooth)));
  }
  return divisors;
}

void llama_items(const ModelConfig& m, Items& n, bool interleaved) {
  n.whole("token_embd.weight", "embed.weight");
  if (m.rope_scaling.kind == RopeScalingKind::llama3) n.values("rope_freqs.weight", frequency_divisors(m));
  for (int64_t l = 0; l < m.layers; ++l) {
    const std::string e = fmt::format("blk.{}.", l), o = fmt::format("layers.{}.", l);
    n.whole(e + "attn_norm.weight", o + "attention_norm.weight");
    llama_attention_items(m, n, l, interleaved);
    n.whole(e + "ffn_norm.weight", o + "mlp_norm.weight");
    if (m.is_moe(l)) {
      const std::string gate_up = o + "moe.experts.gate_up.weight";
      n.whole(e + "ffn_gate_inp.weight", o + "moe.router.weight", true);
      n.expert_rows(e + "ffn_gate_exps.weight", gate_up, 0, m.moe.hidden);
      n.expert_rows(e + "ffn_up_exps.weight", gate_up, m.moe.hidden, m.moe.hidden);
      n.whole(e + "ffn_down_exps.weight", o + "moe.experts.down.weight");
    } else {
      n.rows(e + "ffn_gate.weight", o + "mlp.gate_up.weight", 0, m.mlp_hidden());
      n.rows(e + "ffn_up.weight", o + "mlp.gate_up.weight", m.mlp_hidden(), m.mlp_hidden());
      n.whole(e + "ffn_down.weight", o + "mlp.down.weight");
    }
  }
  n.whole("output_norm.weight", "final_norm.weight");
  if (!m.tied) n.whole("output.weight", "lm_head.weight");
}

/// llama.cpp's name of the architecture; Error for what it does not know or would compute differently.
std::string architecture_of(const ModelConfig& m) {
  const HuggingfaceLayout layout = huggingface_layout(m);
  huggingface_config(m, layout, {});  // refuses what the family itself cannot express
  const std::string& f = layout.family;
  const auto refuse = [&](bool bad, const char* what) {
    if (bad) throw Error(fmt::format("llama.cpp would compute this {} model differently: {}", f, what),
                         "export with --format=hf, or change the model");
  };
  if (f != "gpt2" && f != "llama" && f != "mixtral" && f != "qwen3" && f != "qwen3_moe" && f != "mistral")
    throw Error(fmt::format("GGUF export knows no model of family {}", f), "families: gpt2, llama, mistral, mixtral, qwen3, qwen3_moe");
  refuse(m.window > 0, "it has a sliding window");
  refuse(m.rope_scaling.kind == RopeScalingKind::yarn, "its rotation is scaled by YaRN");
  refuse(m.moe.experts > 0 && !m.moe.normalize, "its expert weights are not divided by their sum");
  refuse(m.qk_norm && m.attention_bias, "it has biases in attention");
  return f == "qwen3_moe" ? "qwen3moe" : f == "gpt2" || f == "qwen3" ? f : "llama";
}

uint32_t u32(int64_t n) { return static_cast<uint32_t>(n); }

void add_model_keys(GgufWriter& w, const ModelConfig& m, const std::string& arch) {
  const auto key = [&](const char* name) { return arch + "." + name; };
  const bool gpt2 = arch == "gpt2", qwen_moe = arch == "qwen3moe";
  w.add(key("context_length"), u32(m.context));
  w.add(key("embedding_length"), u32(m.width));
  w.add(key("block_count"), u32(m.layers));
  w.add(key("feed_forward_length"), u32(m.moe.experts > 0 && !qwen_moe ? m.moe.hidden : m.mlp_hidden()));
  w.add(key("attention.head_count"), u32(m.heads));
  w.add(key("vocab_size"), u32(m.vocab));
  w.add(key(gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"), static_cast<float>(m.norm_eps));
  if (gpt2) return;
  w.add(key("attention.head_count_kv"), u32(m.kv_heads));
  w.add(key("attention.key_length"), u32(m.key_width()));
  w.add(key("attention.value_length"), u32(m.key_width()));
  w.add(key("rope.dimension_count"), u32(m.key_width()));
  w.add(key("rope.freq_base"), static_cast<float>(m.rope_theta));
  if (m.rope_scaling.kind == RopeScalingKind::linear) {
    w.add(key("rope.scaling.type"), std::string("linear"));
    w.add(key("rope.scaling.factor"), static_cast<float>(m.rope_scaling.factor));
  }
  if (m.moe.experts == 0) return;
  w.add(key("expert_count"), u32(m.moe.experts));
  w.add(key("expert_used_count"), u32(m.moe.top_k));
  if (qwen_moe) w.add(key("expert_feed_forward_length"), u32(m.moe.hidden));
}

/// llama.cpp's name of a splitting that it has built in.
std::string pre_tokenizer_of(const TokenizerSpec& spec) {
  for (const auto& [ours, theirs] : {std::pair<const char*, const char*>{"gpt2", "gpt-2"},
                                     {"llama3", "llama-bpe"},
                                     {"qwen2", "qwen2"},
                                     {"o200k", "gpt-4o"},
                                     {"deepseek-v3", "deepseek-v3"}}) {
    TokenizerSpec known;
    set_pattern(known, ours);
    if (known.splits == spec.splits && known.gpt2_split == spec.gpt2_split && !spec.add_prefix_space) return theirs;
  }
  throw Error("llama.cpp does not know how this tokenizer splits text, and a GGUF file cannot say it",
              "it knows the patterns gpt2, llama3, qwen2, o200k and deepseek-v3");
}

std::string chat_template(FileSystem& fs, const StoredModel& m) {
  if (m.small_files.empty()) return "";
  if (fs.exists(m.small_files + "/chat_template.jinja")) return fs.read(m.small_files + "/chat_template.jinja");
  if (!fs.exists(m.small_files + "/tokenizer_config.json")) return "";
  const auto j = nlohmann::json::parse(fs.read(m.small_files + "/tokenizer_config.json"), nullptr, false);
  return j.is_object() && j.contains("chat_template") && j["chat_template"].is_string() ? j["chat_template"].get<std::string>() : "";
}

void add_tokenizer_keys(FileSystem& fs, GgufWriter& w, const StoredModel& m, const Tokenizer& t, ExportReport& report) {
  const TokenizerSpec& spec = t.spec();
  if (spec.model != TokenizerSpec::Model::bpe)
    throw Error("a character tokenizer has no counterpart in llama.cpp", "train with tokenizer.kind = \"bpe\"");
  enum TokenType : int32_t { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };
  const auto size = static_cast<size_t>(m.config.vocab);
  std::vector<std::string> tokens = spec.vocabulary;
  std::vector<int32_t> types(tokens.size(), kNormal);
  tokens.resize(size);
  types.resize(size, kUnused);
  for (const AddedToken& a : spec.added_tokens) {
    tokens[static_cast<size_t>(a.id)] = a.content;
    types[static_cast<size_t>(a.id)] = a.special ? kControl : kUserDefined;
  }
  for (size_t i = 0; i < size; ++i)  // rows of the embedding that no token uses
    if (tokens[i].empty()) tokens[i] = fmt::format("[PAD{}]", i), types[i] = kUnused;
  std::vector<std::string> merges;
  for (const auto& [a, b] : spec.merges)
    merges.push_back(spec.vocabulary[static_cast<size_t>(a)] + " " + spec.vocabulary[static_cast<size_t>(b)]);
  const std::string pre = pre_tokenizer_of(spec);
  if (spec.ignore_merges != (pre == "llama-bpe"))
    report.notes.push_back(fmt::format("llama.cpp's '{}' {} merges for words that are tokens; ids may differ for such words", pre,
                                       pre == "llama-bpe" ? "ignores" : "applies"));
  if (spec.nfc) report.notes.push_back("llama.cpp does not normalise text (NFC); ids may differ for text that is not normalised");
  w.add("tokenizer.ggml.model", std::string("gpt2"));
  w.add("tokenizer.ggml.pre", pre);
  w.add("tokenizer.ggml.tokens", tokens);
  w.add("tokenizer.ggml.token_type", types);
  w.add("tokenizer.ggml.merges", merges);
  for (const auto& [name, id] : {std::pair<const char*, std::optional<int32_t>>{"bos", t.roles().bos},
                                 {"eos", t.roles().eos},
                                 {"padding", t.roles().pad}})
    if (id) w.add(fmt::format("tokenizer.ggml.{}_token_id", name), static_cast<uint32_t>(*id));
  w.add_flag("tokenizer.ggml.add_bos_token", spec.template_bos >= 0);
  if (const std::string chat = chat_template(fs, m); !chat.empty()) w.add("tokenizer.chat_template", chat);
}

GgmlType type_of(const Item& item, GgufType wanted) {
  if (item.exact) return GgmlType::f32;
  if (wanted == GgufType::q8_0) return item.shape[-1] % 32 == 0 ? GgmlType::q8_0 : GgmlType::f16;
  return wanted == GgufType::f32 ? GgmlType::f32 : wanted == GgufType::f16 ? GgmlType::f16 : GgmlType::bf16;
}

uint32_t file_type(GgufType t) { return t == GgufType::f32 ? 0 : t == GgufType::f16 ? 1 : t == GgufType::q8_0 ? 7 : 32; }

/// Bytes of one tensor in its type; refuses what is not finite.
std::vector<std::byte> bytes_of(const StoredModel& m, const Decoder& decoder, const Item& item, GgmlType type, StatisticsTable& table) {
  std::vector<float> values = item.values;
  if (values.empty()) {
    const std::vector<std::byte> raw = read_external(m.reader, decoder, item.view, DType::f32);
    values.resize(raw.size() / 4);
    std::memcpy(values.data(), raw.data(), raw.size());
  }
  const TensorStatistics s = measure(std::as_bytes(std::span(values)), "F32");
  if (s.first_bad >= 0)
    throw Error(fmt::format("'{}': weight '{}' holds a value that is not finite", m.reader.path(), item.view.name),
                "this checkpoint cannot be used; go back to an older one");
  table.add(item.view.name, s);
  return to_ggml(type, values.data(), static_cast<int64_t>(values.size()), item.view.name);
}

}  // namespace

ExportReport export_gguf(FileSystem& fs, const StoredModel& m, const std::string& out, const GgufExportOptions& options) {
  if (fs.exists(out)) throw Error(fmt::format("'{}' exists already", out), "choose another file, or delete this one");
  ExportReport report;
  const std::string arch = report.family = architecture_of(m.config);
  const Decoder decoder(m.config);
  GgufWriter w;
  w.add("general.architecture", arch);
  w.add("general.type", std::string("model"));
  w.add("general.name", options.name.empty() ? m.folder.substr(m.folder.find_last_of('/') + 1) : options.name);
  w.add("general.file_type", file_type(options.type));
  if (options.type == GgufType::q8_0) w.add("general.quantization_version", uint32_t{2});
  add_model_keys(w, m.config, arch);
  if (m.tokenizer_folder.empty() && options.tokenizer.empty()) {
    w.add("tokenizer.ggml.model", std::string("no_vocab"));
    report.notes.push_back("the model came without a tokenizer: llama.cpp can run it on token ids only");
  } else {
    add_tokenizer_keys(fs, w, m, load_tokenizer(m, options.tokenizer), report);
  }
  Items collected(decoder);
  if (arch == "gpt2") gpt2_items(m.config, collected);
  else llama_items(m.config, collected, arch == "llama");
  const std::vector<Item> items = collected.take();
  std::vector<GgmlType> types;
  for (const Item& item : items) {
    types.push_back(type_of(item, options.type));
    if (options.type == GgufType::q8_0 && types.back() == GgmlType::f16)
      report.notes.push_back(fmt::format("'{}' {} stays F16: its rows are no multiple of 32", item.view.name, item.shape.str()));
    w.add_tensor(item.view.name, item.shape, types.back());
    report.bytes += ggml_bytes(types.back(), item.shape);
  }
  StatisticsTable statistics;
  Progress progress("writing weights", report.bytes, Progress::Unit::bytes);
  checkpoint_layout::create_folders_durably(fs, checkpoint_layout::parent_of(out));
  w.write(fs, out, [&](size_t i) {
    std::vector<std::byte> bytes = bytes_of(m, decoder, items[i], types[i], statistics);
    progress.add(static_cast<int64_t>(bytes.size()));
    return bytes;
  });
  progress.finish();
  report.files = {out};
  report.tensors = items.size();
  report.statistics = statistics.text();
  return report;
}

}  // namespace ingot
