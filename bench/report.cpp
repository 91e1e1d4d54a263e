#include "report.h"

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace weft::bench {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kNotAGpu = "host device (not a GPU)";

struct Summary {
  double median = 0;
  double min = 0;
  double max = 0;
};

Summary summarize(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back()};
}

Summary of(const std::vector<Sample>& samples, std::size_t figure) {
  std::vector<double> values;
  for (const Sample& sample : samples) values.push_back(sample[figure]);
  return summarize(std::move(values));
}

/// Of each repetition by itself: what slows the machine down for a while slows both sides.
Summary ratio_of(const Report& report, std::size_t figure) {
  std::vector<double> values;
  for (std::size_t i = 0; i < report.weft.size(); ++i) values.push_back(report.weft[i][figure] / report.raw[i][figure]);
  return summarize(std::move(values));
}

std::string text_of(const Summary& summary, int digits) {
  return fmt::format("{:.{}f} ({:.{}f}..{:.{}f})", summary.median, digits, summary.min, digits, summary.max, digits);
}

Json json_of(const Summary& summary) {
  return {{"median", summary.median}, {"min", summary.min}, {"max", summary.max}};
}

Json header(const Report& report, const char* side) {
  Json line{{"work", report.work}, {"side", side}};
  for (const auto& [name, value] : report.parameters) line[name] = value;
  for (const auto& [name, value] : report.machine) line[name] = value;
  return line;
}

Json side_line(const Report& report, const char* side, const std::vector<Sample>& samples) {
  Json line = header(report, side);
  const char* prefix = report.raw.empty() && !report.is_gpu ? "host_" : "";
  for (std::size_t i = 0; i < report.figures.size(); ++i)
    line[fmt::format("{}{}_{}", prefix, report.figures[i].name, report.figures[i].unit)] = json_of(of(samples, i));
  return line;
}

Json ratio_line(const Report& report) {
  Json line = header(report, "weft/raw");
  for (std::size_t i = 0; i < report.figures.size(); ++i)
    line[fmt::format("{}_ratio", report.figures[i].name)] = json_of(ratio_of(report, i));
  return line;
}

std::string row_format(const char* about, const std::string& a, const std::string& b, const std::string& c) {
  return fmt::format("{:<48}{:<22}{:<28}{}\n", about, a, b, c);
}

int digits_of(const Figure& figure) { return std::string_view(figure.unit) == "us" ? 2 : 0; }

}  // namespace

std::string to_text(const Report& report) {
  std::string text = report.work;
  for (const auto& [name, value] : report.parameters) text += fmt::format("  {} {}", name, value);
  text += '\n';
  for (const auto& [name, value] : report.machine) text += fmt::format("{}: {}\n", name, value);
  text += fmt::format("\nmedian of {} repetitions (least..most), us where it is a time\n", report.weft.size());
  if (report.raw.empty() && report.is_gpu) {
    for (std::size_t i = 0; i < report.figures.size(); ++i) {
      text +=
          fmt::format("{:<48}{}\n", report.figures[i].about, text_of(of(report.weft, i), digits_of(report.figures[i])));
    }
    return text;
  }
  if (report.raw.empty()) {
    text += fmt::format("{}: times of its CPU code, with no hand-written twin to hold them to\n", kNotAGpu);
    for (std::size_t i = 0; i < report.figures.size(); ++i) {
      text += fmt::format("{:<48}{} on the {}\n", report.figures[i].about,
                          text_of(of(report.weft, i), digits_of(report.figures[i])), kNotAGpu);
    }
    return text;
  }
  text += row_format("", "weft/raw", "weft", "raw");
  for (std::size_t i = 0; i < report.figures.size(); ++i) {
    const int digits = digits_of(report.figures[i]);
    text += row_format(report.figures[i].about, text_of(ratio_of(report, i), 3), text_of(of(report.weft, i), digits),
                       text_of(of(report.raw, i), digits));
  }
  return text;
}

std::string to_json_lines(const Report& report) {
  std::string lines = side_line(report, "weft", report.weft).dump() + '\n';
  if (report.raw.empty()) return lines;
  lines += side_line(report, "raw", report.raw).dump() + '\n';
  return lines + ratio_line(report).dump() + '\n';
}

}  // namespace weft::bench
