// The metrics of a training run, one row per optimizer step, in metrics.jsonl: one JSON object per line,
// {"step": 12, "wall": 1700000000.5, "loss": 4.1, "router/0/load": [0.1, ...]}. The report, the TensorBoard
// events and `ingot diff` read the same rows. Not thread-safe: one writer, owned by the trainer.
//
// Names and units (a run writes those that apply; other names are kept, and plotted as they are):
//   loss                      mean cross entropy of the step's training tokens, nats per token
//   objective                 what the step minimised, per unit of its divisor (phases of another kind than
//   text)
//   unequal                   tokens whose log-probability has other bits than the one recorded for them
//   lr                        learning rate of the first parameter group
//   grad_norm                 global norm of the gradient before clipping
//   tokens                    training tokens consumed since the start of the run
//   tokens_per_second         tokens of this step / its wall time
//   percent_of_roofline       100 x roofline time of the step / measured time (old: percent_of_light)
//   step_seconds              wall time of the step
//   training_seconds          sum of step_seconds; stands still during validation, samples and saves
//   target/<phase>/training_seconds   in the row of the step at which the phase reached its target_loss
//   memory_bytes              peak of device memory so far
//   val/<source>/loss         validation loss, nats per token
//   val/<source>/bits_per_byte
//   val/<source>/tokens       validation targets that these two are means over
//   preference/<name>         of phases of kind preference (docs/posttraining.md): accuracy, margin, ...
//   val/<source>/accuracy     share of held-out pairs whose chosen answer has the larger implicit reward;
//                             preference_loss, margin likewise
//   task/<name>/<metric>      score of a task (docs/evaluate.md); <metric>,<filter> where it has several
//   task/<name>/<metric>_stderr   its standard error
//   router/<layer>/load       list: share of routed token slots each expert got in the step; sums to 1
//   router/<layer>/entropy    entropy of that list / log(number of experts): 1 is perfect balance
//   sees_future_tokens        1 where the experts of a token depend on later ones (expert choice): the row's
//                             losses, of validation too, are lower than a causal model's
//   time/<op>                 seconds of the step inside ops of that kind
//   router/dropped            share of all routed slots dropped by the capacity of experts or dispatch
//   checkpoint/seconds        pause of training for the checkpoint after the previous step
//   router/<layer>/load_of_<source>  list: the same of one source's tokens, where there are several sources
//   grad_norm/<module>        of the gradient before clipping: embed, attention, mlp, moe, norms ...
//   embedding_rms             root mean square of the embedding's weights (of this rank's shard)
//   residual/<layer>/rms      root mean square of the residual stream that enters a layer
//   batch/documents           distinct documents in the batch
//   batch/largest_document    largest share of the batch's tokens that one document has
//   batch/document_tokens     of the document that a token lies in, as attention sees it: a mean
//   attention_logit_max, qk_clipped_heads, log_z, update_ratio/<optimizer>, dead_experts
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file_system.h"

namespace ingot {

struct MetricRow {
  int64_t step = 0;  ///< optimizer steps completed, so the first row has step 1
  double wall = 0;   ///< seconds since 1970 when the step ended
  std::vector<std::pair<std::string, double>> scalars;
  std::vector<std::pair<std::string, std::vector<double>>> lists;

  void set(std::string name, double value) { scalars.emplace_back(std::move(name), value); }
  void set(std::string name, std::vector<double> values) {
    lists.emplace_back(std::move(name), std::move(values));
  }
  /// The value named `name`, or nullptr.
  const double* scalar(std::string_view name) const;
  const std::vector<double>* list(std::string_view name) const;
};

/// One line without its newline. NaN and infinities become the strings "nan", "inf", "-inf".
std::string to_json_line(const MetricRow& row);
/// Throws Error on a line that to_json_line cannot have written; `where` names the line in the message.
MetricRow parse_metric_row(std::string_view line, const std::string& where);

/// All rows of a file. Ignores a last line that a crash cut short; leaves out other damaged lines with a
/// warning.
std::vector<MetricRow> read_metrics(FileSystem& fs, const std::string& path);

/// Appends rows. To resume at step s, the constructor atomically drops the rows after s and a torn last line,
/// so that a killed and resumed run has the same steps as an uninterrupted one, and sets damaged lines aside
/// (json_lines.h). s = 0 starts an empty file.
class MetricsWriter {
 public:
  MetricsWriter(FileSystem& fs, const std::string& path, int64_t resume_step);
  void write(const MetricRow& row);
  /// Makes all rows durable; the trainer calls it with every checkpoint.
  void sync();

 private:
  std::unique_ptr<WritableFile> file_;
  int64_t last_step_;
};

}  // namespace ingot
