// The HTML report of a run, or of several beside each other: one self-contained page with a light and a dark
// theme, made from the files of the run folders (metrics.h and run_record.h define the names). Plots without
// data are left out. The page of a run that is training reads itself again every 15 seconds.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "report/metrics.h"
#include "report/reason_results.h"
#include "report/run_record.h"

namespace ingot {

struct ReportData {
  std::string label;  ///< what legends and tables call the run; needed for several
  RunRecord record;
  std::vector<MetricRow> rows;  ///< ascending steps
  std::vector<Sample> samples;
  std::vector<ReasonResult> reasoning;
  std::string profile;   ///< its section as HTML (profile_plots.h); may be empty
  bool running = false;  ///< a process trains in the folder now
};

std::string render_report(const ReportData& data);
/// Several runs over each other: a table of results, the plots, the settings that differ.
std::string render_comparison(std::span<const ReportData> runs);

/// A page in the style of the report: a head, then `body` (HTML). `version`: of the program.
std::string render_page(const std::string& title, const std::string& facts, const std::string& version,
                        const std::string& body);

/// What a run folder holds, with its name as the label. Error naming a missing or damaged file.
ReportData read_report_data(FileSystem& fs, const std::string& run_folder);
/// Reads the run folder and writes report.html into it, atomically. Errors of read_report_data.
void write_report(FileSystem& fs, const std::string& run_folder, bool running);

/// Keeps report.html of a run that is training up to date at no more than about 1 % of its time. Not
/// thread-safe.
class LiveReport {
 public:
  LiveReport(FileSystem& fs, std::string run_folder);
  /// Writes the page if the last one is 15 seconds old, and as old as a hundred times what writing it took.
  void update();

 private:
  FileSystem& fs_;
  std::string folder_;
  double due_;  ///< monotonic seconds
};

}  // namespace ingot
