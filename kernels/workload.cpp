#include "workload.h"

#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <cstddef>
#include <string>

namespace weft::kernels {
namespace {

std::string names_of(std::initializer_list<WorkloadWord> words) {
  std::string names;
  for (const WorkloadWord& word : words) {
    if (!names.empty()) names += ", ";
    names += word.name;
  }
  return names;
}

}  // namespace

void check_workload(std::string_view kernel, std::span<const std::uint64_t> workload,
                    std::initializer_list<WorkloadWord> words) {
  if (workload.size() != words.size()) {
    throw Error(ErrorCode::invalid,
                fmt::format("The workload has {} words, and the launch rule of \"{}\" takes {} ({}).", workload.size(),
                            kernel, words.size(), names_of(words)));
  }
  std::size_t position = 0;
  for (const WorkloadWord& word : words) {
    const std::uint64_t value = workload[position];
    if (value == 0 || value > word.limit) {
      throw Error(ErrorCode::invalid,
                  fmt::format("Workload word {} ({}) is {}, and the launch rule of \"{}\" takes 1 to {}.", position,
                              word.name, value, kernel, word.limit));
    }
    ++position;
  }
}

}  // namespace weft::kernels
