package settings

// Kaggle configures the batch service `kaggle`.
type Kaggle struct {
	URL         string
	Accelerator string
	Internet    bool
	Keep        bool
	MaxOutput   int64
	CodeCarbon  bool
}

func declareKaggle(k *Kaggle) []*setting {
	return []*setting{
		{key: "kaggle.accelerator", value: text(&k.Accelerator), initial: "none",
			help: "Accelerator of runs that do not ask for one: `none`, `gpu`, `tpu`, or an accelerator by Kaggle's own name, such as `NvidiaTeslaT4`. Hours with one count against the week's quota."},
		{key: "kaggle.internet", value: boolean(&k.Internet), initial: "false",
			help: "Let every run reach the internet, even if it does not ask for it. Kaggle allows this for accounts with a verified phone number."},
		{key: "kaggle.keep", value: boolean(&k.Keep), initial: "false",
			help: "Leave scripts and their output on Kaggle after a run has ended and its files have been fetched."},
		{key: "kaggle.maxOutput", value: size(&k.MaxOutput, mib, 20*gib), initial: "1g",
			help: "Total size of the files that are fetched from one run. The others stay on Kaggle, and the result says so. It is at most two fifths of `runs.maxDisk`."},
		{key: "kaggle.codecarbon", value: boolean(&k.CodeCarbon), initial: "false",
			help: "Also run CodeCarbon's own tracker along with the code, and report its figures next to ours. It is installed from PyPI for each run, so it needs internet access. It also needs `carbon.kaggle.location`."},
		{key: "kaggle.url", value: text(&k.URL), initial: "https://api.kaggle.com",
			help: "Address of Kaggle's API: https, or http on this machine for tests."},
	}
}
