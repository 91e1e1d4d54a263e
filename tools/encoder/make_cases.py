#!/usr/bin/env python3
"""Makes cases for weft-encoder from a BERT's folder: sentences, and what its authors' code makes of them in float64.

Writes input_ids, attention_mask, last_hidden_state (masked rows zero) and embeddings (masked mean, L2-normalised). Needs
PyTorch and Hugging Face transformers, and nothing from a network.
"""
import argparse
import pathlib

import torch
from safetensors.torch import save_file
from transformers import AutoTokenizer, BertModel

SENTENCES = [
    "A frozen model runs as one graph.",
    "The quick brown fox jumps over the lazy dog, turns around at the fence, and comes back the same way.",
    "Yes.",
    "How far is it from the harbour to the old lighthouse, and can it be walked at low tide?",
    "Die Katze schläft auf dem warmen Dach.",
    "In 1969 two people walked on the Moon while a third stayed in orbit around it.",
    "Rain is expected in the north by the evening; elsewhere it stays dry, with light winds from the west and a "
    "temperature of about 20 degrees.",
    "",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=pathlib.Path, help="folder with config.json, weights and tokenizer")
    parser.add_argument("cases", type=pathlib.Path, help="safetensors file to write")
    parser.add_argument("--sentences", type=pathlib.Path, help="a text file, one sentence a line")
    arguments = parser.parse_args()
    sentences = arguments.sentences.read_text().splitlines() if arguments.sentences else SENTENCES

    tokenizer = AutoTokenizer.from_pretrained(arguments.model, local_files_only=True)
    model = BertModel.from_pretrained(arguments.model, local_files_only=True, add_pooling_layer=False).double().eval()
    tokens = tokenizer(sentences, padding=True, truncation=True, return_tensors="pt", padding_side="right",
                       max_length=model.config.max_position_embeddings)
    mask = tokens["attention_mask"]
    with torch.no_grad():
        states = model(input_ids=tokens["input_ids"], attention_mask=mask).last_hidden_state * mask.unsqueeze(-1)
    embeddings = torch.nn.functional.normalize(states.sum(1) / mask.sum(1, keepdim=True))
    save_file(
        {
            "input_ids": tokens["input_ids"].int(),
            "attention_mask": mask.int(),
            "last_hidden_state": states.float().contiguous(),
            "embeddings": embeddings.float().contiguous(),
        },
        arguments.cases,
    )
    print(f"{arguments.cases}: {len(sentences)} cases of up to {mask.shape[1]} tokens")


if __name__ == "__main__":
    main()
