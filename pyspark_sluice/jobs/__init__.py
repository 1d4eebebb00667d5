"""Programs that run on Spark beside the broker: sizing, pipelines, dead letters.

A job is told where its input and its output are and finds both from every machine: what it computes from
rows it computes on the executors, and its driver sees plans, progress and reports. The programs themselves,
for spark-submit, are in jobs/.
"""
