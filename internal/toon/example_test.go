package toon_test

import (
	"encoding/json"
	"errors"
	"fmt"

	"sallyport/internal/toon"
)

func ExampleMarshal() {
	document, err := toon.Marshal(json.RawMessage(`{
		"status": "success",
		"stdout": ["line1", "line2"],
		"files": [
			{"path": "a.csv", "bytes": 120, "by": {"name": "Ada"}},
			{"path": "b,c.csv", "bytes": 9007199254740993, "by": {"name": "Bob"}}
		]
	}`), toon.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(document))
	// Output:
	// status: success
	// stdout[2]: line1,line2
	// files[2]{path,bytes,by{name}}:
	//   a.csv,120,Ada
	//   "b,c.csv",9007199254740993,Bob
}

func ExampleUnmarshal() {
	data, err := toon.Unmarshal([]byte("hosts[2:]{ip,up}:\n  alpha: 10.0.0.1,true\n  beta: 10.0.0.2,false"), toon.Options{})
	fmt.Println(string(data), err)

	_, err = toon.Unmarshal([]byte("tags[3]: a,b\n"), toon.Options{})
	var malformed *toon.Error
	if errors.As(err, &malformed) {
		fmt.Println(malformed.Line, err)
	}
	// Output:
	// {"hosts":{"alpha":{"ip":"10.0.0.1","up":true},"beta":{"ip":"10.0.0.2","up":false}}} <nil>
	// 1 toon: line 1: the header declares 3, but there are 2
}
