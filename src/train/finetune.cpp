// See finetune.h.
#include "train/finetune.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "data/source.h"
#include "exchange/huggingface_folder.h"
#include "exchange/import.h"
#include "train/prepare.h"

namespace ingot {
namespace {

constexpr int64_t kDefaultSequence = 1024;
constexpr int64_t kFewDocuments = 200;  // 5 % of fewer could be none

/// Rows with answers to learn from need a loss on those alone; learning the prompts too would be something else.
void require_text_rows(FileSystem& fs, const std::vector<data::SourceFile>& files, const std::string& field) {
  for (const data::SourceFile& f : files) {
    if (!f.json_lines) continue;
    const auto map = fs.map(f.path);
    const std::string_view text(reinterpret_cast<const char*>(map->bytes().data()), map->bytes().size());
    const auto row = nlohmann::json::parse(text.substr(0, text.find('\n')), nullptr, false);
    if (!row.is_object() || row.contains(field)) continue;
    for (const char* other : {"completion", "messages", "chosen"})
      if (row.contains(other))
        throw Error(fmt::format("'{}' has rows with '{}' and no '{}'", f.path, other, field),
                    "finetune learns every token of plain text: write each example as one \"text\", or name its field with --field");
  }
}

int64_t count_documents(FileSystem& fs, const std::vector<data::SourceFile>& files, const std::string& field) {
  data::DocumentReader reader(fs, files, {.field = field});
  std::string_view document;
  int64_t n = 0;
  while (n < kFewDocuments && reader.next(document)) ++n;
  return n;
}

bool knows(const Tokenizer& t, const std::string& prompt) {
  try {
    return !t.encode(prompt).empty();
  } catch (const Error&) {  // a character tokenizer without one of its characters
    return false;
  }
}

}  // namespace

Recipe finetune_recipe(FileSystem& fs, const StoredModel& m, const FinetuneOptions& o) {
  if (!(o.epochs > 0)) fail("--epochs must be positive, found {}", o.epochs);
  const auto files = data::find_source_files(fs, {o.data});
  require_text_rows(fs, files, o.field);
  const Tokenizer tokenizer = load_tokenizer(m, o.tokenizer);
  Recipe r;
  r.run.folder = o.run_folder;
  r.run.start_from = m.reader.path();
  r.run.precision = m.precision.compute == DType::bf16 ? PrecisionChoice::bf16 : PrecisionChoice::f32;
  r.model = m.config;
  r.tokenizer.path = !o.tokenizer.empty() ? o.tokenizer : m.tokenizer_folder;
  if (!m.small_files.empty()) {  // export gives them back; the run does not depend on the import's folder
    const std::string own = o.run_folder + "/" + kSmallFiles;
    copy_small_files(fs, m.small_files, own);
    if (o.tokenizer.empty()) r.tokenizer.path = own;
  }
  r.data.folder = o.run_folder + "/data";
  r.data.end_of_text = tokenizer.roles().eos.has_value();
  SourceConfig source;
  source.name = "finetune";
  source.path = o.data;
  source.field = o.field;
  source.validation_fraction = count_documents(fs, files, o.field) < kFewDocuments ? 0 : o.validation_fraction;
  r.data.sources = {source};
  r.optimizer.matrices = OptimizerKind::adamw;
  r.optimizer.weight_decay = 0;
  r.optimizer.beta2 = 0.999;
  StageConfig& stage = r.stages.front();
  stage.name = "finetune";
  stage.sequence = o.sequence > 0 ? o.sequence : std::min(m.config.context, kDefaultSequence);
  stage.batch = o.batch;
  stage.lr = o.lr;
  stage.schedule = ScheduleKind::linear;
  stage.warmup = 0;
  stage.steps = 1;
  r.checkpoint.every = 0;
  if (!knows(tokenizer, r.samples.prompts.front())) r.samples.prompts.clear();
  read_config(to_node(r), Recipe{});  // complains before any work
  const int64_t tokens = prepare_data(fs, r).sources.front().train()->tokens();
  const double rows = o.epochs * static_cast<double>(tokens) / static_cast<double>(stage.sequence);
  stage.batch = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(rows)), 1, o.batch);  // no more rows than there are
  stage.steps = std::max<int64_t>(1, std::llround(rows / static_cast<double>(stage.batch)));
  stage.warmup = stage.steps / 30;
  r.evaluation.every = std::max<int64_t>(1, stage.steps / 10);
  r.samples.every = 0;
  return r;
}

}  // namespace ingot
