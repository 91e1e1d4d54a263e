#pragma once

#include "encoder/bert.h"

#include <map>
#include <string>

namespace weft::encoder {

/// Settings by their names in Hugging Face's `config.json`, each value as its text in JSON, strings without quotes.
using Settings = std::map<std::string, std::string>;

/// What the settings say of a BERT encoder. Errors: `invalid` for one that is missing, is no number, or does not fit
/// the others; `unsupported` for another model than BERT, and for a BERT that the kernels do not compute.
[[nodiscard]] BertConfig read_config(const Settings& settings);

}  // namespace weft::encoder
