// `ingot plan --accuracy`: what runs predicted of themselves beside what they measured, from their run.json.
#pragma once
#include <string>
#include <vector>

#include "base/file_system.h"
#include "report/prediction.h"

namespace ingot {

/// A start of a run that measured something.
struct StartAccuracy {
  std::string run;
  int start = 1;  ///< counted from 1
  int64_t ranks = 1;
  std::vector<Prediction> predictions;
};

/// The starts of the runs in these folders, in order. Throws Error for a folder without run.json, and where
/// none of a run's starts has measured: it is named, with what would do.
std::vector<StartAccuracy> read_accuracy(FileSystem& fs, const std::vector<std::string>& folders);

/// One row a quantity, of many ranks the one that is furthest off; below it how many are within their bounds.
std::string to_text(const std::vector<StartAccuracy>& runs);
/// Every entry: run, start, what, of, predicted, measured, ratio, off; bytes or seconds.
std::string to_json(const std::vector<StartAccuracy>& runs);

}  // namespace ingot
