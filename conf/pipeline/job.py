"""What `spark-submit` runs: `spark-submit OPTIONS job.py JOB ...` is `mdserver pipeline JOB ...`.

mdserver with its extra `pipeline` must be installed for the Python that spark-submit starts
(PYSPARK_PYTHON). The cluster, its memory and the jars are options of spark-submit.
"""

import sys

from mdserver.cli.main import main

if __name__ == "__main__":
    main(["pipeline", *sys.argv[1:]])
