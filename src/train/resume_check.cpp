// See resume_check.h.
#include "train/resume_check.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "base/log.h"
#include "checkpoint/layout.h"
#include "checkpoint/model_state.h"
#include "device/cuda/cuda_device.h"
#include "device/gemm/library_choice.h"
#include "exchange/import.h"
#include "ops/registry.h"
#include "optim/update_kernels.h"
#include "report/metrics.h"
#include "report/run_record.h"
#include "train/phase_sampler.h"

namespace ingot {

namespace {

/// Whether a fixed key of a phase is free yet: all of later phases, and the number of steps of the present
/// one. Where ranks have come or gone (`refits`), batch sizes too: the sampler continues from the samples
/// consumed.
bool may_still_change(const std::string& path, size_t present_phase, bool refits) {
  size_t phase = 0;
  char key[32] = {};
  if (std::sscanf(path.c_str(), "phases.%zu.%31s", &phase, key) != 2) return false;
  const std::string_view k = key;
  const bool is_size = k == "batch" || (k.starts_with("batches.") && k.ends_with(".batch"));
  return phase > present_phase || (phase == present_phase && k == "steps") || (refits && is_size);
}

/// The recipe that a checkpoint was written with. A key without effect is as it is now.
Recipe saved_recipe(const CheckpointReader& reader, const Recipe& now) {
  Recipe then = recipe_from_toml(config_of_blob(reader, "recipe"), reader.path() + ": recipe");
  MoeConfig& moe = then.model.moe;
  if (moe.experts == 0 || then.run.precision == PrecisionChoice::f32)
    moe.router_precision = now.model.moe.router_precision;
  if (moe.aux_coefficient == 0 && now.model.moe.aux_coefficient == 0) moe.aux_scope = now.model.moe.aux_scope;
  return then;
}

/// The first step after `step` at which a run saves.
int64_t next_save(const Recipe& recipe, int64_t step) {
  int64_t end = 0;
  for (const PhaseConfig& phase : recipe.phases)
    if ((end += phase.steps) > step) break;
  const int64_t every = recipe.checkpoint.every;
  return every > 0 ? std::min(end, (step / every + 1) * every) : end;
}

}  // namespace

std::string kernel_set_of(const Recipe& recipe) {
  const DType compute = recipe.model_precision().compute;
  std::string set = kernel_set_fingerprint(compute);
  const DeviceKind device = compute_device();
  const bool muon_has = recipe.optimizer.muon.newton_schulz.precision == NewtonSchulzPrecision::bf16 &&
                        has_update_kernels(device) &&
                        refuse_bf16_products(device) == nullptr;  // else they are the CPU's
  if (muon_has) set += fmt::format(", Muon's in bf16 on {}", name_of(device));
  if (device == DeviceKind::cuda && compute == DType::bf16)
    if (const std::string library = library_that_multiplies(); !library.empty())
      set += fmt::format(", products by {}", library);
  // Tensor cores of another generation may add in another order.
  if ((compute == DType::bf16 || muon_has) && device == DeviceKind::cuda)
    set += " on " + cuda_device().driver().architecture();
  return set;
}

void require_same_run(const CheckpointReader& reader, const Recipe& recipe, const std::string& tokenizer,
                      bool accept_kernels, bool warns) {
  if (reader.manifest().blobs.contains(kImportBlob))
    throw Error(fmt::format("'{}' holds an imported model, not a run", recipe.run.folder),
                fmt::format("set run.start_from = \"{}\" and another run.folder, or use `ingot finetune`",
                            recipe.run.folder));
  const SavedRun then = SavedRun::of(reader);
  const std::string& kernels = then.kernels;
  if (kernels != kernel_set_of(recipe)) {
    const std::string what = fmt::format("'{}' was written with kernel set {}, this program has {}",
                                         reader.path(), kernels, kernel_set_of(recipe));
    if (!accept_kernels)
      throw Error(
          what + ": the run would not continue bit for bit",
          "--accept-kernels resumes it all the same, which run.json records; or resume with the program "
          "that started the run");
    if (warns) log::warn("{}: accepted, the run does not continue bit for bit", what);
  }
  if (then.tokenizer != tokenizer)
    throw Error(fmt::format("'{}' was trained with tokenizer {}, the recipe's is {}", reader.path(),
                            then.tokenizer, tokenizer),
                "restore the data folder of the run, or start a new run");
  for (const ConfigDifference& d : diff_config(to_node(saved_recipe(reader, recipe)), to_node(recipe))) {
    if (d.fixed && !may_still_change(d.path, then.phase, recipe.parallel.batch_fit != BatchFit::refuse))
      throw Error(fmt::format("the run in '{}' has {} = {}, the recipe says {}", recipe.run.folder, d.path,
                              d.left, d.right),
                  "revert the change to resume, or choose another run.folder for a new run");
    if (d.path != "run.folder" && warns) log::warn("{} was {} and is now {}", d.path, d.left, d.right);
  }
}

void require_new_run(FileSystem& fs, const Recipe& recipe) {
  const std::string &run = recipe.run.folder, folder = run + "/" + run_files::kCheckpoints;
  const bool has_folder = fs.exists(folder);
  if (has_folder)
    for (const std::string& name : fs.list(folder))
      if (checkpoint_layout::is_checkpoint_name(name))
        throw Error(
            fmt::format("'{}' holds checkpoints, but none of them is complete and undamaged", folder),
            "starting anew would overwrite this run: restore a checkpoint, choose another run.folder, "
            "or delete the folder");
  const std::string metrics = run + "/" + run_files::kMetrics;
  std::vector<MetricRow> rows;
  if (fs.exists(metrics)) rows = read_metrics(fs, metrics);
  // A run makes the folder before its first step, also where no checkpoint could be written.
  const int64_t first = rows.empty() ? 0 : next_save(recipe, rows.front().step - 1);
  if (!has_folder && !rows.empty() && rows.back().step > first)
    throw Error(
        fmt::format("'{}' has metrics up to step {} and no checkpoint, though the first was due at step {}",
                    run, rows.back().step, first),
        fmt::format("starting anew would overwrite this run: if it is a copy, copy '{}' too; else choose "
                    "another run.folder, or delete the folder",
                    run_files::kCheckpoints));
  if (!rows.empty())
    log::info("the run in '{}' has no checkpoint yet: starting again (it had come to step {})", run,
              rows.back().step);
  else if (fs.exists(run + "/" + run_files::kRecord))
    log::info("the run in '{}' has no checkpoint yet: starting again", run);
}

}  // namespace ingot
