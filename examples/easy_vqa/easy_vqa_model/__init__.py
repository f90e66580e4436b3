"""The data set easy-VQA and a small image model, as a plug-in of SGPU."""
