// See finetune.h.
#include "train/finetune.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/log.h"
#include "chat/chat_template.h"
#include "chat/preference_row.h"
#include "data/sampler.h"
#include "data/source.h"
#include "exchange/control_tokens.h"
#include "exchange/huggingface_folder.h"
#include "exchange/import.h"
#include "train/phase_sampler.h"
#include "train/prepare.h"

namespace ingot {
namespace {

constexpr int64_t kDefaultSequence = 1024;
constexpr double kRate = 2e-5;
constexpr int64_t kFewDocuments = 200;  // of fewer, 5 % could be none

/// The fields of text and prompt, from the first row where the options do not name them.
data::SourceOptions row_fields(FileSystem& fs, const std::vector<data::SourceFile>& files,
                               const FinetuneOptions& o) {
  data::SourceOptions fields{.field = o.field.empty() ? "text" : o.field, .prompt_field = o.prompt_field};
  if (!o.field.empty() || files.empty() || !files.front().json_lines) return fields;
  const auto map = fs.map(files.front().path);
  const std::string_view text(reinterpret_cast<const char*>(map->bytes().data()), map->bytes().size());
  const auto row = nlohmann::json::parse(text.substr(0, text.find('\n')), nullptr, false);
  if (!row.is_object() || row.contains("text")) return fields;
  fields.preferences = chat::is_preference(text.substr(0, text.find('\n')));
  fields.conversations = !fields.preferences && chat::is_conversation(text.substr(0, text.find('\n')));
  if (fields.whole_rows()) return fields;
  if (row.contains("completion")) {
    fields.field = "completion";
    if (o.prompt_field.empty() && row.contains("prompt")) fields.prompt_field = "prompt";
    return fields;
  }
  return fields;
}

/// Whether the first row of preferences has messages, not texts.
bool wants_template(FileSystem& fs, const std::vector<data::SourceFile>& files) {
  data::DocumentReader reader(fs, files, {.preferences = true});
  std::string_view row;
  return reader.next(row) && !chat::read_preference(row, reader.where()).plain;
}

/// Puts the chat template, the tokenizer and the ids that end a reply into `folder`, from where the run and
/// an export take them.
void write_chat_files(FileSystem& fs, const StoredModel& m, const FinetuneOptions& o,
                      const Tokenizer& tokenizer, const std::string& folder) {
  fs.create_folders(folder);
  if (m.small_files.empty() || !o.tokenizer.empty()) tokenizer.save(folder, fs);
  if (!o.chat_template.empty())
    write_file_atomically(fs, folder + "/chat_template.jinja",
                          chat::open_template(fs, o.chat_template).source());
  const auto found = chat::ChatTemplate::from_folder(fs, folder);
  if (!found)
    throw Error(
        fmt::format("the model '{}' has no chat template, which conversations need", m.reader.path()),
        "choose one with --chat-template: a .jinja file, a folder that has one, or chatml-think, which is "
        "shipped");
  chat::require_tokens(*found, tokenizer);
  const std::string path = folder + "/generation_config.json";
  auto config = nlohmann::ordered_json::parse(fs.exists(path) ? fs.read(path) : "{}", nullptr, false);
  if (!config.is_object()) config = nlohmann::ordered_json::object();
  const std::vector<int32_t> turn_ends = chat::end_ids(*found, tokenizer);
  std::set<int32_t> ends(turn_ends.begin(), turn_ends.end());
  if (const auto eos = tokenizer.roles().eos) ends.insert(*eos);
  const auto ids = config.value("eos_token_id", nlohmann::ordered_json());
  for (const auto& id : ids.is_array() ? ids : nlohmann::ordered_json::array({ids}))
    if (id.is_number_integer()) ends.insert(id.get<int32_t>());
  config["eos_token_id"] = ends;
  write_file_atomically(fs, path, config.dump(2) + "\n");
}

int64_t count_documents(FileSystem& fs, const std::vector<data::SourceFile>& files,
                        const data::SourceOptions& fields) {
  data::DocumentReader reader(fs, files, fields);
  std::string_view document;
  int64_t n = 0;
  while (n < kFewDocuments && reader.next(document)) ++n;
  return n;
}

/// Sequences of one pass over the training text: packed rows, or windows of the token stream.
double sequences_per_epoch(const Recipe& r, const PreparedData& data) {
  const PhaseConfig& phase = r.phases.front();
  const auto split = data.sources.front().train();
  if (phase.kind == "text" && r.data.sampling != data::SampleMode::best_fit)
    return static_cast<double>(split->tokens()) / static_cast<double>(phase.sequence);
  const PhaseSampler rows(r, data);
  const data::Sampler& sampler = rows.rows();
  if (const int64_t dropped = sampler.packed(0).dropped; dropped > 0)
    log::warn("{} of {} rows are longer than {} tokens and left out", dropped, split->documents(),
              phase.sequence);
  return static_cast<double>(sampler.epoch_samples(0));
}

}  // namespace

Recipe finetune_recipe(FileSystem& fs, const StoredModel& m, const FinetuneOptions& o) {
  if (!(o.epochs > 0)) fail("--epochs must be positive, found {}", o.epochs);
  const auto files = data::find_source_files(fs, {o.data});
  const data::SourceOptions fields = row_fields(fs, files, o);
  const Tokenizer tokenizer = load_tokenizer(m, o.tokenizer);
  Recipe r;
  r.run.folder = o.run_folder;
  r.run.start_from = m.reader.path();
  r.run.precision = m.precision.compute == DType::bf16 ? PrecisionChoice::bf16 : PrecisionChoice::f32;
  r.model = m.config;
  if (o.lora.rank > 0 && m.config.lora.rank > 0)
    throw Error(fmt::format("'{}' has adapters already", m.reader.path()),
                "leave out --lora to train these further; for new ones merge these first: ingot export, then "
                "ingot import");
  if (o.lora.rank > 0) r.model.lora = o.lora;
  r.optimizer.freeze = o.freeze;
  r.tokenizer.path = !o.tokenizer.empty() ? o.tokenizer : m.tokenizer_folder;
  if (!m.small_files.empty()) {  // for export; the run does not depend on the folder of the import
    const std::string own = o.run_folder + "/" + kSmallFiles;
    copy_small_files(fs, m.small_files, own);
    if (o.tokenizer.empty()) r.tokenizer.path = own;
  }
  if (fields.conversations || (fields.preferences && wants_template(fs, files))) {
    const std::string own = o.run_folder + "/" + kSmallFiles;
    write_chat_files(fs, m, o, tokenizer, own);
    r.tokenizer.path = own;
    r.data.trust_text = o.trust_text;
  }
  r.data.folder = o.run_folder + "/data";
  r.data.end_of_text = tokenizer.roles().eos.has_value();
  r.data.end_of_text_first = m.document_start == DocumentStart::end_of_text && r.data.end_of_text;
  r.data.begin_of_text = !r.data.end_of_text_first && control_tokens(fs, m, tokenizer).begin.has_value();
  if (o.parse_special) r.data.special_tokens = SpecialText::parse;
  SourceConfig source;
  source.name = "finetune";
  source.path = o.data;
  source.field = fields.field;
  source.prompt_field = fields.prompt_field;
  source.conversations = fields.conversations;
  source.preferences = fields.preferences;
  source.validation_fraction = count_documents(fs, files, fields) < kFewDocuments ? 0 : o.validation_fraction;
  r.data.sources = {source};
  const bool whole_rows = !fields.prompt_field.empty() || fields.conversations;
  if (whole_rows) r.data.sampling = data::SampleMode::best_fit;
  r.data.drop_too_long = o.drop_too_long && whole_rows;
  r.optimizer.groups.matrices = "adamw";
  r.optimizer.weight_decay = 0;
  r.optimizer.adamw.beta2 = 0.999;
  PhaseConfig& phase = r.phases.front();
  phase.name = "finetune";
  phase.sequence = o.sequence > 0 ? o.sequence : std::min(m.config.context, kDefaultSequence);
  phase.batch = o.batch;
  phase.lr = o.lr.value_or(fields.preferences ? kRate / 10 : kRate);
  if (fields.conversations) {
    phase.kind = "chat";
    phase.chat.emplace();
  }
  if (fields.preferences) {
    phase.kind = "preference";
    phase.preference = o.preference;
    phase.preference->drop_too_long = o.drop_too_long;
  }
  phase.schedule = ScheduleKind::linear;
  phase.warmup = 0;
  phase.steps = 1;
  r.checkpoint.every = 0;
  read_config(to_node(r), Recipe{});  // refuses a bad recipe before any work
  const double rows = o.epochs * sequences_per_epoch(r, prepare_data(fs, r));
  phase.batch =
      std::clamp<int64_t>(static_cast<int64_t>(std::ceil(rows)), 1, o.batch);  // no more rows than there are
  phase.steps = std::max<int64_t>(1, std::llround(rows / static_cast<double>(phase.batch)));
  phase.warmup = phase.steps / 30;
  r.evaluation.every = std::max<int64_t>(1, phase.steps / 10);
  r.samples.every = 0;
  return r;
}

}  // namespace ingot
