"""Models as folders of JSON and safetensors."""
