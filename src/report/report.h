// The HTML report of a run: one file that needs no network, readable in light and dark, made from what the
// run folder holds (metrics.h and run_record.h say what the names mean). Plots without data are left out.
#pragma once
#include <string>
#include <vector>

#include "base/file_system.h"
#include "report/metrics.h"
#include "report/run_record.h"

namespace ingot {

struct ReportData {
  RunRecord record;
  std::vector<MetricRow> rows;  ///< ascending steps
  std::vector<Sample> samples;
  std::string profile;  ///< section of it (profile_plots.h); "": none
};

std::string render_report(const ReportData& data);

/// A page in the report's style: its head, then `body` (HTML). `version`: of the program.
std::string render_page(const std::string& title, const std::string& facts, const std::string& version,
                        const std::string& body);

/// Reads the run folder and writes report.html into it, atomically. Errors name the file that is missing or
/// damaged.
void write_report(FileSystem& fs, const std::string& run_folder);

}  // namespace ingot
